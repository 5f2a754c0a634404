"""Create request → Variant. Pure."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from jan_serve.core.models.variant import Variant, VariantMessage
from jan_serve.dialects.ollama.management.wire import OllamaCreateRequest
from jan_serve.dialects.ollama.options import parse_options
from jan_serve.errors import InvalidRequest

_GO: Final = re.compile(
    r"\{\{-?\s*(?:[.$]|/\*|if\s|(?:range|with)\s+(?!(?:if|is|in|and|or|not|else)\b(?!\s+[.$(]))[\w.$]"
    r'|(?:define|template|block)\s+")'
)
"""What begins an action of Go's templates, in which Ollama's are written, and is no expression of Jinja: there, `range`
may be called, and the other words may be names."""


def check_create(body: OllamaCreateRequest) -> None:
    """Raises InvalidRequest for what this server does not do."""
    for field, reason in (
        ("modelfile", "send its parts: from, system, template, parameters, messages"),
        ("quantize", "this server does not quantise models; pull another quantisation"),
    ):
        if getattr(body, field):
            raise InvalidRequest(f"{field}: not supported; {reason}", param=field)
    if bool(body.from_) == bool(body.files):
        raise InvalidRequest("either `from` or `files` is needed, and not both", param="from")
    if body.files and len(body.files) > 1:
        raise InvalidRequest("files: one GGUF file makes a model, and nothing else", param="files")
    if body.adapters and (len(body.adapters) > 1 or not body.from_):
        raise InvalidRequest("adapters: one GGUF file, for a variant of the model `from`", param="adapters")
    if body.template and _GO.search(body.template):
        raise InvalidRequest(
            "template: Ollama's templates are written in Go's language, this server renders Jinja; leave it out to use"
            " the model's own",
            param="template",
        )


def variant_of(
    body: OllamaCreateRequest,
    name: str,
    base: str,
    inherited: Variant | None,
    now: float,
    adapter: str | None = None,
) -> Variant:
    """base: canonical name of the model. inherited: the variant that `from` names. adapter: as ModelStore keeps it.

    Raises InvalidRequest.
    """
    options = parse_options(body.parameters)
    values = msgspec.structs.asdict(options.sampling) | msgspec.structs.asdict(options.stopping)
    own = Variant(
        name=name,
        base=base,
        created_at=now,
        system=body.system or None,
        template=body.template or None,
        messages=tuple(VariantMessage(each.role, each.content) for each in body.messages or ()),
        defaults={field: values[field] for field in sorted(options.given)},
        parameters=dict(body.parameters or {}),
        adapter=adapter,
        license=body.license if isinstance(body.license, str) else "\n".join(body.license or ()) or None,
    )
    return own if inherited is None else _over(inherited, own)


def _over(inherited: Variant, own: Variant) -> Variant:
    changes: dict[str, Any] = {
        "defaults": {**inherited.defaults, **own.defaults},
        "parameters": {**inherited.parameters, **own.parameters},
    }
    for field in ("system", "template", "messages", "license", "adapter"):
        changes[field] = getattr(own, field) or getattr(inherited, field)
    return msgspec.structs.replace(own, **changes)
