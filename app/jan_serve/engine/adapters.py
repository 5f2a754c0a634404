"""The LoRA adapters of one loaded model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jan_serve.core.models import AdapterFacts
from jan_serve.engine.cache.state_files import state_key
from jan_serve.engine.llama.context import LlamaContext
from jan_serve.engine.llama.model import LlamaAdapter, LlamaModel
from jan_serve.engine.tokens import PrefixMark
from jan_serve.errors import InvalidModel, InvalidRequest
from jan_serve.ipc.messages import AdapterFile, AdapterUse


class Adapters:
    """The loaded adapters, in the order of the settings. Must be created before the contexts of the model."""

    def __init__(self, model: LlamaModel, files: Sequence[AdapterFile]) -> None:
        """Load the files; blocks. Raises InvalidModel, which names the adapter."""
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
        """Use exactly these adapters for the next decodes of the context."""
        if self._loaded:
            context.set_adapters(
                [self._loaded[use.index].pointer for use in uses], [use.scale for use in uses]
            )

    def mark(self, uses: Sequence[AdapterUse], salt: str) -> PrefixMark | None:
        """Separates prefixes under these adapters and this salt from all others; None for neither. Any thread.

        Raises InvalidRequest.
        """
        for use in uses:
            if not 0 <= use.index < len(self._loaded):
                raise InvalidRequest(f"lora: there is no adapter {use.index}", param="lora")
        parts = [f"{self._digests[use.index]} {use.scale!r}" for use in uses]
        if salt:
            parts.append(f"salt {salt}")
        return PrefixMark.of(*parts) if parts else None
