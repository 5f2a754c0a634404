"""Models as Ollama's clients see them: rows of lists, /api/show, capabilities, names that always have a tag. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final, NotRequired, cast

from typing_extensions import TypedDict

from jan_serve.chat.detect import knows_thoughts
from jan_serve.core.latest_tag import with_latest_tag
from jan_serve.core.models import HeaderFacts, ListedModel, ModelDetails, ModelFacts, ModelStatus, Variant
from jan_serve.dialects.ollama.common import ModelFields, OptionValues
from jan_serve.dialects.ollama.serving import time_text
from jan_serve.generation.profiles import BUILT_IN, TemplateOverride

_KEPT_MODELS: Final = 2048


@lru_cache(_KEPT_MODELS)
def shown_names(model: ListedModel) -> tuple[str, ...]:
    """The names of a model in lists, the main one first: its own, its aliases, and its adapters as tags.

    A model that was imported from Ollama, or made of an upload, has the name that it got there alone.
    """
    own = () if model.source in ("ollama", "created") and model.aliases else (model.name,)
    adapters = (f"{model.name}:{adapter}" for adapter in model.adapters)
    return tuple(dict.fromkeys(with_latest_tag(name) for name in (*own, *model.aliases, *adapters)))


class OllamaDetails(TypedDict):
    """parameter_size: as `8.2B`. quantization_level: as `Q4_K_M`. context_length: what the server gives."""

    parent_model: str
    format: str
    family: str
    families: list[str]
    parameter_size: str
    quantization_level: str
    context_length: NotRequired[int]
    embedding_length: NotRequired[int]


class ModelRow(TypedDict):
    """What rows of both lists have."""

    name: str
    model: str
    size: int
    digest: str
    details: OllamaDetails


class ListedRow(ModelRow):
    """size: bytes of all files. digest: 64 hexadecimal digits that change with the model.

    capabilities: as in OllamaShowReply; missing until the server has read the header of a new file.
    """

    modified_at: str
    capabilities: NotRequired[list[str]]


class ModelRows(TypedDict):
    models: list[ListedRow]


class LoadedRow(ModelRow):
    """size, size_vram: bytes of memory, and of it on an accelerator. expires_at: when it is unloaded if idle."""

    expires_at: str
    size_vram: int
    context_length: int


class LoadedRows(TypedDict):
    models: list[LoadedRow]


class OllamaShowRequest(ModelFields):
    """A model to show. verbose: with long arrays of its header, and its tensors."""

    verbose: bool | None = None
    system: str | None = None
    template: str | None = None
    options: OptionValues = None


class OllamaTensor(TypedDict):
    name: str
    type: str
    shape: list[int]


class ShownMessage(TypedDict):
    role: str
    content: str


class OllamaShowReply(TypedDict):
    """model_info: the file's header; its context_length is the one that the server gives.

    capabilities: of completion, tools, thinking, vision, audio, insert, embedding.
    """

    modelfile: str
    parameters: NotRequired[str]
    template: NotRequired[str]
    system: NotRequired[str]
    license: NotRequired[str]
    messages: NotRequired[list[ShownMessage]]
    details: OllamaDetails
    model_info: dict[str, Any]
    tensors: NotRequired[list[OllamaTensor]]
    capabilities: list[str]
    modified_at: str


def capabilities(
    facts: HeaderFacts, modalities: Container[str], *, templated: bool, thinks: bool
) -> list[str]:
    """A model with a template can call tools: the server holds its answers to their schemas."""
    if facts.pooling is not None:
        return ["embedding"]
    has = {
        "completion": True,
        "tools": templated,
        "thinking": thinks,
        "vision": "vision" in modalities,
        "audio": "audio" in modalities,
        "insert": facts.fills_gaps,
    }
    return [name for name, present in has.items() if present]


def listed_capabilities(
    facts: HeaderFacts | None, modalities: Container[str], override: TemplateOverride | None
) -> list[str] | None:
    """Without the text of the model's own template. override: the configured one. None while the header is unread."""
    if facts is None or facts.thinks is None:
        return None
    text = None if override is None else override.source or BUILT_IN.get(override.name)
    if text is not None:
        return capabilities(facts, modalities, templated=True, thinks=knows_thoughts(text))
    # An override without a text names one of the model's own templates, which differ in tools alone.
    templated = facts.has_chat_template or override is not None
    return capabilities(facts, modalities, templated=templated, thinks=facts.thinks)


FOR_EVER: Final = timedelta(days=106_751)
"""Ollama's longest duration, 2^63 nanoseconds."""

_KEPT_ROWS: Final = 4096
"""Clients ask for the list again and again."""


def listed_rows(
    models: Iterable[ListedModel], override_of: Callable[[str, str | None], TemplateOverride | None]
) -> list[ListedRow]:
    """The newest first. override_of: the configured template of a model, by itself (None) or another of its names."""
    usable = (model for model in models if model.problem is None)
    newest_first = sorted(usable, key=lambda model: -model.modified_at)
    return [
        _row(model, name, override_of(model.name, None if name == with_latest_tag(model.name) else name))
        for model in newest_first
        for name in shown_names(model)
    ]


@lru_cache(_KEPT_ROWS)
def _row(model: ListedModel, name: str, override: TemplateOverride | None) -> ListedRow:
    row: ListedRow = {
        "name": name,
        "model": name,
        "modified_at": modified_at(model),
        "size": model.size_bytes,
        "digest": digest(model),
        "details": details(model.facts),
    }
    found = listed_capabilities(model.facts, model.modalities, override)
    if found is not None:
        row["capabilities"] = found
    return row


def loaded_rows(
    models: Iterable[ListedModel], states: Sequence[ModelStatus], now: datetime
) -> list[LoadedRow]:
    """The models in memory, those that stay longest first."""
    by_name = {model.name: model for model in models}
    found: list[tuple[datetime, LoadedRow]] = []
    for state in states:
        model = by_name.get(state.name)
        if model is None or state.facts is None or state.state != "ready":
            continue
        longest_s = FOR_EVER.total_seconds()
        left_s = longest_s if state.ttl_left_s is None else min(state.ttl_left_s, longest_s)
        expires = now + timedelta(seconds=left_s)
        name = shown_names(model)[0]
        row: LoadedRow = {
            "name": name,
            "model": name,
            "size": state.taken_bytes,
            "digest": digest(model),
            "details": details(model.facts),
            "expires_at": expires.isoformat(timespec="microseconds"),
            "size_vram": _on_device(state.taken_bytes, state.facts),
            "context_length": state.facts.n_ctx,
        }
        found.append((expires, row))
    return [row for _, row in sorted(found, key=lambda item: item[0], reverse=True)]


def modified_at(model: ListedModel) -> str:
    return time_text(datetime.fromtimestamp(model.modified_at, UTC))


def digest(model: ListedModel) -> str:
    """The SHA-256 of the first file if it is known, else one of what changes with the file."""
    if model.sha256 is not None:
        return model.sha256
    return sha256(f"{model.name}\0{model.size_bytes}\0{model.modified_at}".encode()).hexdigest()


def details(facts: HeaderFacts | None) -> OllamaDetails:
    """facts: None if the header was not read yet."""
    family = facts.architecture if facts is not None else ""
    return {
        "parent_model": "",
        "format": "gguf",
        "family": family,
        "families": [family] if family else [],
        "parameter_size": parameter_size(facts.n_parameters) if facts is not None else "",
        "quantization_level": (facts.quantisation if facts is not None else None) or "unknown",
    }


def parameter_size(count: int) -> str:
    """The count as Ollama writes it: `8.2B`, `8B`, `494.03M`, `12.34K`."""
    if count >= 1_000_000_000:
        return f"{count / 1_000_000_000:.1f}".removesuffix(".0") + "B"
    if count >= 1_000_000:
        return f"{count / 1_000_000:.2f}M"
    return f"{count / 1_000:.2f}K" if count >= 1_000 else str(count)


def _on_device(taken: int, facts: ModelFacts) -> int:
    if facts.placement:
        return min(taken, sum(part.total for part in facts.placement if part.kind != "cpu"))
    return taken * min(facts.n_gpu_layers, facts.n_layer) // facts.n_layer if facts.n_layer else 0


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
        "details": {**details(facts), "context_length": found.n_ctx, "embedding_length": found.n_embd},
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
