"""The answer of /api/show. Pure."""

from __future__ import annotations

from typing import Any, Final

from jan_serve.api.dialects.ollama.models.listing import details, modified_at
from jan_serve.api.dialects.ollama.models.wire import ShowReply
from jan_serve.api.dialects.ollama.names import shown_names
from jan_serve.chat.detect import knows_thoughts
from jan_serve.core.model_details import ModelDetails

_LONG_ARRAY: Final = 5
_LEFT_OUT: Final = ("general.name", "tokenizer.chat_template")
_INSERT_KEYS: Final = ("prefix", "suffix", "middle")


def shown(
    found: ModelDetails, name: str, template: str | None, *, verbose: bool, titled: bool = False
) -> ShowReply:
    """name: as requested. template: the chat template that the server uses.

    titled: the client shows `general.basename` as the model's name, so it is the requested one.
    """
    facts = found.model.facts
    architecture = str(found.metadata.get("general.architecture", ""))
    reply: ShowReply = {
        "modelfile": f"# Modelfile of jan-serve\nFROM {shown_names(found.model)[0]}\n",
        "details": {
            **details(facts),
            "context_length": found.n_ctx,
            "embedding_length": found.n_embd,
        },
        "model_info": _model_info(found, architecture, name, verbose=verbose, titled=titled),
        "capabilities": capabilities(found, template),
        "modified_at": modified_at(found.model),
    }
    if template is not None:
        reply["template"] = template
    text = found.metadata.get("general.license")
    if isinstance(text, str):
        reply["license"] = text
    if verbose:
        reply["tensors"] = [
            {"name": tensor.name, "type": tensor.type, "shape": list(tensor.shape)}
            for tensor in found.tensors
        ]
    return reply


def capabilities(found: ModelDetails, template: str | None) -> list[str]:
    """A model with a template can call tools: the server holds its answers to their schemas."""
    architecture = found.metadata.get("general.architecture")
    if f"{architecture}.pooling_type" in found.metadata:
        return ["embedding"]
    has = {
        "completion": True,
        "tools": template is not None,
        "thinking": template is not None and knows_thoughts(template),
        "insert": all(_fim_key(found, role) for role in _INSERT_KEYS),
    }
    return [name for name, present in has.items() if present]


def _fim_key(found: ModelDetails, role: str) -> bool:
    """Whether the header names this fill-in-the-middle token, by its newer or older key."""
    return any(f"tokenizer.ggml.{key}_token_id" in found.metadata for key in (f"fim_{role[:3]}", role))


def _model_info(
    found: ModelDetails, architecture: str, name: str, *, verbose: bool, titled: bool
) -> dict[str, Any]:
    info: dict[str, Any] = {
        key: [] if isinstance(value, list) and len(value) > _LONG_ARRAY and not verbose else value
        for key, value in found.metadata.items()
        if not key.startswith(_LEFT_OUT)
    }
    if titled:
        info["general.basename"] = name
    facts = found.model.facts
    if facts is not None:
        info.setdefault("general.parameter_count", facts.n_parameters)
    # Clients budget prompts with it.
    info[f"{architecture}.context_length"] = found.n_ctx
    return info
