"""The LoRA adapters of one loaded model: which there are, and which apply to the next batch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jan_serve.core.model_facts import AdapterFacts
from jan_serve.engine.cache.prefix_mark import PrefixMark
from jan_serve.engine.cache.state_files import state_key
from jan_serve.engine.llama.adapter import LlamaAdapter
from jan_serve.engine.llama.context import LlamaContext
from jan_serve.engine.llama.model import LlamaModel
from jan_serve.errors import InvalidModel, InvalidRequest
from jan_serve.ipc.messages import AdapterFile, AdapterUse


class Adapters:
    """In the order of the settings. Contexts of the model are to be made after it."""

    def __init__(self, model: LlamaModel, files: Sequence[AdapterFile]) -> None:
        """Load them; blocks. Raises InvalidModel, which names the adapter."""
        self._loaded: list[LlamaAdapter] = []
        self._digests: list[str] = []
        for file in files:
            try:
                self._digests.append(state_key([Path(file.path)]))
            except OSError as error:
                raise InvalidModel(
                    f"The LoRA adapter `{file.name}` cannot be read: {error.strerror}."
                ) from None
            self._loaded.append(LlamaAdapter(model, file.path, file.name))
        self.facts = tuple(AdapterFacts(file.name, file.scale) for file in files)

    def apply(self, context: LlamaContext, uses: Sequence[AdapterUse]) -> None:
        """What the context decodes from now on is computed with these adapters and no others."""
        if self._loaded:
            context.set_adapters(
                [self._loaded[use.place].pointer for use in uses], [use.scale for use in uses]
            )

    def mark(self, uses: Sequence[AdapterUse], salt: str) -> PrefixMark | None:
        """What keeps prefixes under these adapters and this salt apart; None for neither. Any thread.

        Raises InvalidRequest.
        """
        for use in uses:
            if not 0 <= use.place < len(self._loaded):
                raise InvalidRequest(f"lora: there is no adapter {use.place}", param="lora")
        parts = [f"{self._digests[use.place]} {use.scale!r}" for use in uses]
        if salt:
            parts.append(f"salt {salt}")
        return PrefixMark.of(*parts) if parts else None
