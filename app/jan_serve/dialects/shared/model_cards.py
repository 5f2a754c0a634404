"""Fields of a model in lists of models: the context length, and `meta` as in llama-server."""

from __future__ import annotations

from typing import Any, Final

from jan_serve.core.models import ListedModel, ModelStatus
from jan_serve.dialects.model_store import ModelStore
from jan_serve.errors import ModelNotFound

OWNER: Final = "jan-serve"


def context_length(model: ListedModel, state: ModelStatus | None) -> int | None:
    """Tokens of prompt and answer together: of the loaded model, else of its training."""
    if state is not None and state.facts is not None:
        return state.facts.n_ctx
    return model.facts.n_ctx_train if model.facts is not None else None


def input_modalities(model: ListedModel) -> list[str]:
    """The kinds of input that a model reads, in OpenRouter's words."""
    return ["text", *({"vision": "image"}.get(sense, sense) for sense in model.modalities)]


def meta(model: ListedModel, state: ModelStatus | None) -> dict[str, Any]:
    """Facts from the header, and further ones once the model was loaded."""
    facts: dict[str, Any] = {"size": model.size_bytes}
    if model.facts is not None:
        facts |= {
            "architecture": model.facts.architecture,
            "title": model.facts.title,
            "n_ctx_train": model.facts.n_ctx_train,
            "n_params": model.facts.n_parameters,
            "quantization": model.facts.quantisation,
            "has_chat_template": model.facts.has_chat_template,
            "pooling": model.facts.pooling,
        }
    if state is not None and state.facts is not None:
        facts |= {"n_vocab": state.facts.n_vocab, "n_embd": state.facts.n_embd, "n_ctx": state.facts.n_ctx}
    return facts


async def unknown_model(name: str, store: ModelStore | None) -> ModelNotFound:
    """The error for a name that no list has, with a remedy if models are managed."""
    return ModelNotFound(name) if store is None else await store.unknown(name)
