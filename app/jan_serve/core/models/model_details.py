"""All that the header of a model says, for one model at a time: ListedModel has what lists need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from jan_serve.core.models.listed_model import ListedModel
from jan_serve.core.models.variant import Variant

MetadataValue = str | int | float | bool | Sequence[str | int | float | bool]


class TensorFacts(msgspec.Struct, frozen=True):
    """shape: innermost dimension first. type: ggml's name."""

    name: str
    shape: tuple[int, ...]
    type: str


class ModelDetails(msgspec.Struct, frozen=True):
    """metadata: of the GGUF file; empty lists for arrays of more than 256 elements.

    n_ctx: tokens of context that a load gives, as far as that is known before. variant: the one that was asked for.
    """

    model: ListedModel
    metadata: Mapping[str, MetadataValue]
    tensors: tuple[TensorFacts, ...]
    n_embd: int
    n_ctx: int
    variant: Variant | None = None

    @property
    def templates(self) -> dict[str, str]:
        """Chat templates by name, as in ModelFacts.chat_templates."""
        prefix = "tokenizer.chat_template"
        found: dict[str, str] = {}
        for key, value in self.metadata.items():
            if key.startswith(prefix) and isinstance(value, str):
                found[key[len(prefix) + 1 :] or "default"] = value
        return found
