"""A LoRA adapter of a loaded model."""

from __future__ import annotations

from typing import Any

from jan_serve.engine.llama import backend
from jan_serve.engine.llama.bindings import lib
from jan_serve.engine.llama.model import LlamaModel
from jan_serve.errors import InvalidModel


class LlamaAdapter:
    """Wraps `llama_adapter_lora`. The model frees it; contexts created before it must not use it."""

    def __init__(self, model: LlamaModel, path: str, name: str) -> None:
        """Load a GGUF file with a validated header; blocks. Raises InvalidModel, which names the adapter."""
        with backend.last_error() as error:
            pointer = lib.llama_adapter_lora_init(model.pointer, path.encode("utf-8"))
        if not pointer:
            reason = error.text or "llama.cpp gives no reason"
            raise InvalidModel(f"The LoRA adapter `{name}` does not go with this model: {reason}.")
        self.name = name
        self.pointer: Any = pointer
        if int(lib.llama_adapter_get_alora_n_invocation_tokens(pointer)):
            raise InvalidModel(
                f"The LoRA adapter `{name}` is an activated one (aLoRA), which begins to apply in the middle of a"
                " prompt. Those are not supported."
            )
