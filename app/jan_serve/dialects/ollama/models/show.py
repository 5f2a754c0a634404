"""The answer of /api/show. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from jan_serve.chat.detect import knows_thoughts
from jan_serve.core.models.listed_model import HeaderFacts, ListedModel
from jan_serve.core.models.model_details import ModelDetails
from jan_serve.core.models.variant import Variant
from jan_serve.dialects.ollama.models.capabilities import capabilities
from jan_serve.dialects.ollama.models.listing import details, modified_at
from jan_serve.dialects.ollama.models.wire import OllamaShowReply
from jan_serve.dialects.ollama.names import shown_names

_LONG_ARRAY: Final = 5
_LEFT_OUT: Final = ("general.name", "tokenizer.chat_template")


def shown(
    found: ModelDetails, name: str, template: str | None, *, verbose: bool, titled: bool = False
) -> OllamaShowReply:
    """name: as requested. template: the chat template that the server uses.

    titled: the client shows `general.basename` as the model's name, so it is the requested one.
    """
    facts = found.model.facts
    architecture = str(found.metadata.get("general.architecture", ""))
    variant = found.variant or Variant(name=name, base=found.model.name, created_at=0)
    parameters = parameter_lines(variant.parameters)
    reply: OllamaShowReply = {
        "modelfile": _modelfile(found.model, variant, parameters),
        "details": {
            **details(facts),
            "context_length": found.n_ctx,
            "embedding_length": found.n_embd,
        },
        "model_info": _model_info(found, architecture, name, verbose=verbose, titled=titled),
        "capabilities": capabilities(
            facts or HeaderFacts(architecture=architecture),
            found.model.modalities,
            templated=template is not None,
            thinks=knows_thoughts(template),
        ),
        "modified_at": modified_at(found.model),
    }
    if template is not None:
        reply["template"] = template
    if parameters:
        reply["parameters"] = "\n".join(parameters)
    if variant.system is not None:
        reply["system"] = variant.system
    if variant.messages:
        reply["messages"] = [{"role": each.role, "content": each.content} for each in variant.messages]
    text = variant.license or found.metadata.get("general.license")
    if isinstance(text, str):
        reply["license"] = text
    if verbose:
        reply["tensors"] = [
            {"name": tensor.name, "type": tensor.type, "shape": list(tensor.shape)}
            for tensor in found.tensors
        ]
    return reply


def parameter_lines(parameters: Mapping[str, Any]) -> list[str]:
    """`NAME VALUE`, one line for each item of a list."""
    lines: list[str] = []
    for name, value in parameters.items():
        for item in cast(list[Any], value) if isinstance(value, list) else [value]:
            lines.append(f"{name:<30} {json.dumps(item, ensure_ascii=False)}")
    return lines


def _modelfile(model: ListedModel, variant: Variant, parameters: Sequence[str]) -> str:
    quoted = {"TEMPLATE": variant.template, "SYSTEM": variant.system, "LICENSE": variant.license}
    lines = [
        "# Modelfile of jan-serve",
        f"FROM {shown_names(model)[0]}",
        *((f"ADAPTER sha256:{variant.adapter}",) if variant.adapter is not None else ()),
        *(f'{word} """{text}"""' for word, text in quoted.items() if text is not None),
        *(f"PARAMETER {line}" for line in parameters),
        *(f'MESSAGE {each.role} """{each.content}"""' for each in variant.messages),
    ]
    return "\n".join(lines) + "\n"


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
