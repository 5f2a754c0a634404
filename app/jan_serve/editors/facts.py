"""What a program has to know of the server. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

PROVIDER: Final = "jan-serve"
KEY_VARIABLE: Final = "JAN_SERVE_API_KEY"
NO_KEY: Final = "none"
"""Stands where a program insists on a key and the server asks for none."""


@dataclass(frozen=True, slots=True)
class EditorModel:
    """A model as the server offers it. n_ctx: tokens; None where it is not known.

    is_exact: n_ctx is that of the loaded model, not a guess from its file.
    """

    name: str
    n_ctx: int | None
    is_chat: bool
    is_embedding: bool
    is_exact: bool = True

    @property
    def n_output(self) -> int | None:
        """Tokens of an answer that leave room for a prompt: a quarter of the context, 16384 at most."""
        return None if self.n_ctx is None else min(self.n_ctx // 4, 16_384)


def editor_model(card: Mapping[str, Any], max_default_n_ctx: int) -> EditorModel:
    """A model of /v1/models. max_default_n_ctx: of a model that is not loaded."""
    meta = cast(dict[str, Any], card.get("meta") or {})
    pooling = meta.get("pooling")
    loaded, trained = meta.get("n_ctx"), card.get("context_length")
    guess = min(trained, max_default_n_ctx) if isinstance(trained, int) else None
    is_embedding = pooling not in (None, "none", "rank")
    return EditorModel(
        name=str(card["id"]),
        n_ctx=loaded if isinstance(loaded, int) else guess,
        is_chat=not is_embedding and pooling != "rank",
        is_embedding=is_embedding,
        is_exact=isinstance(loaded, int),
    )


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """url: without a path and without a slash at its end. model: the one to use first, which can chat."""

    url: str
    needs_key: bool
    models: tuple[EditorModel, ...]
    model: EditorModel

    @property
    def base_url(self) -> str:
        """Where the OpenAI routes are."""
        return f"{self.url}/v1"

    @property
    def chat_models(self) -> tuple[EditorModel, ...]:
        """All that can chat, the first one to use first."""
        others = tuple(model for model in self.models if model.is_chat and model != self.model)
        return (self.model, *others)

    @property
    def embedding_models(self) -> tuple[EditorModel, ...]:
        """All that embed."""
        return tuple(model for model in self.models if model.is_embedding)


@dataclass(frozen=True, slots=True)
class Folders:
    """Where programs keep their settings. config: ~/.config on Linux and macOS; code: the User folder of VS Code."""

    home: Path
    config: Path
    code: Path
    zed: Path
