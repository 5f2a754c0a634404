"""A profile configures a single model: its chat template, and defaults for its requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from jan_serve.chat.chatml import CHATML
from jan_serve.core.caller import stop_loops
from jan_serve.core.messages import Message
from jan_serve.core.request import (
    LOOPS,
    ChatPrompt,
    GenerationRequest,
    LoopAction,
    SamplingParams,
    StopConditions,
)
from jan_serve.errors import InvalidRequest, TemplateError

BUILT_IN: Final = {"chatml": CHATML}


class TemplateOverride(msgspec.Struct, frozen=True):
    """Replaces a model's template. source: its text; None if `name` is one of the model's or a built-in."""

    name: str
    source: str | None = None


def template_of(
    model: str, templates: Mapping[str, str], override: TemplateOverride | None, *, with_tools: bool
) -> str | None:
    """The template's text; None if there is none. Raises TemplateError if the override names no template.

    templates: of the model, by name. Without an override: its template for tools if there are tools, else its default
    one.
    """
    if override is None:
        return templates.get("tool_use" if with_tools and "tool_use" in templates else "default")
    if override.source is not None:
        return override.source
    source = templates.get(override.name, BUILT_IN.get(override.name))
    if source is None:
        known = ", ".join(sorted({*templates, *BUILT_IN}))
        raise TemplateError(
            f"the chat template {override.name!r} that is set for {model} is neither a file nor one of {known}"
        )
    return source


S = TypeVar("S", SamplingParams, StopConditions)


class ModelProfile(msgspec.Struct, frozen=True, kw_only=True):
    """template: replaces the model's own. defaults: by fields of SamplingParams and StopConditions.

    system: of chats that have no system message. messages: precede every chat. stop_loops: of requests that do not say
    it themselves.
    """

    template: TemplateOverride | None = None
    defaults: Mapping[str, Any] = msgspec.field(default_factory=dict[str, Any])
    system: str | None = None
    messages: tuple[Message, ...] = ()
    stop_loops: LoopAction = "off"


ProfileOf = Callable[[str, str | None], ModelProfile]
"""The profile of a model, by its canonical name and the name of the request, which may be a variant's."""

Profiles = Callable[[], ProfileOf]
"""The current profiles. May look at the modification time of a file or two."""


def no_profiles() -> ProfileOf:
    return lambda _model, _requested: ModelProfile()


def with_defaults(request: GenerationRequest, profile: ModelProfile) -> GenerationRequest:
    """The request with the profile's messages, and its values for fields that its caller did not set."""
    if isinstance(request.prompt, ChatPrompt) and (profile.system or profile.messages):
        request = msgspec.structs.replace(request, prompt=_with_messages(request.prompt, profile))
    request = _with_loops_stopped(request, profile)
    if request.given is None or not profile.defaults:
        return request
    defaults = {name: value for name, value in profile.defaults.items() if name not in request.given}

    def filled(values: S) -> S:
        own = {name: defaults[name] for name in values.__struct_fields__ if name in defaults}
        return msgspec.structs.replace(values, **own)

    return msgspec.structs.replace(
        request, sampling=filled(request.sampling), stopping=filled(request.stopping)
    )


def _with_loops_stopped(request: GenerationRequest, profile: ModelProfile) -> GenerationRequest:
    """What the request says counts, then its header, then the setting. Raises InvalidRequest for a wrong header."""
    said = stop_loops.get()
    action = said or profile.stop_loops
    if action not in LOOPS:
        raise InvalidRequest(
            f"x-jan-serve-stop-loops: must be one of {', '.join(LOOPS)}, got {said[:40]!a}",
            param="stop_loops",
        )
    detection = LOOPS[action]
    if detection is None or "repetition_detection" in (request.given or ()):
        return request
    if request.stopping.repetition_detection is not None:
        return request
    stopping = msgspec.structs.replace(request.stopping, repetition_detection=detection)
    return msgspec.structs.replace(request, stopping=stopping)


def _with_messages(prompt: ChatPrompt, profile: ModelProfile) -> ChatPrompt:
    has_system = bool(prompt.messages) and prompt.messages[0].role == "system"
    system = (Message(role="system", content=profile.system),) if profile.system and not has_system else ()
    own = (prompt.messages[0],) if has_system else ()
    rest = prompt.messages[len(own) :]
    return msgspec.structs.replace(prompt, messages=(*system, *own, *profile.messages, *rest))
