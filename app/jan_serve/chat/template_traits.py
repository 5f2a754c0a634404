"""Probes the inputs that a chat template accepts and shows, by rendering small conversations with it.

Templates do not declare whether call arguments are text or a mapping, whether they support a system message, or whether
content must be a list of parts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, Final

import jinja2
import msgspec

from jan_serve.chat.template_sandbox import compiled, rendered
from jan_serve.errors import TemplateError

_NEEDLE: Final = "needle-7f3a"
_OTHER: Final = "other-7f3b"
_KEY: Final = "key_of_needle"
_ARGUMENTS: Final[dict[str, Any]] = {_KEY: _NEEDLE, "flag": True, "list": [None, 7]}
_AS_TEXT: Final = json.dumps(_ARGUMENTS)
_PROPERTIES: Final = {_KEY: {"type": "string", "description": "A key."}}
_TOOL: Final[dict[str, Any]] = {
    "type": "function",
    "function": {
        "name": "probe",
        "description": "Probes.",
        "parameters": {"type": "object", "properties": _PROPERTIES, "required": [_KEY]},
    },
}
_USER: Final[dict[str, Any]] = {"role": "user", "content": "Hi."}

EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""The words of requests for `reasoning_effort`, in order."""

PLAIN_EFFORTS: Final = {"minimal": "low", "xhigh": "high", "max": "high"}
"""What a template sees in place of words that few models were trained with, unless it names them."""

_PLAIN: Final = tuple(word for word in EFFORTS if word not in PLAIN_EFFORTS)


class TemplateTraits(msgspec.Struct, frozen=True, kw_only=True):
    """The input that a template requires, and the parts of it that it shows.

    object_arguments: arguments of calls as mappings; else as JSON text. list_content: content as a list of parts.
    null_content: the content of a turn with calls is null, not "". system_role: a system message is shown.
    late_system: so are a second one and one after an answer. repeated_turns: two turns of the user in a row are shown.
    descriptions: every tool and parameter must have one. calls: a turn's calls are shown. parallel_calls: all are.
    no_tools: without tools, `tools` may be None; else it must be an empty list. efforts: the words that may be in
    `reasoning_effort`: those of PLAIN_EFFORTS only if the template names them.
    """

    object_arguments: bool = True
    list_content: bool = False
    null_content: bool = False
    descriptions: bool = False
    system_role: bool = True
    late_system: bool = True
    repeated_turns: bool = True
    calls: bool = True
    parallel_calls: bool = True
    no_tools: bool = True
    efforts: tuple[str, ...] = _PLAIN


@lru_cache(maxsize=32)
def traits_of(source: str) -> TemplateTraits:
    """The traits of a template, cached. Renders it a few times. Raises TemplateError if it does not compile."""
    template = compiled(source)

    render = partial(_rendered, template)
    parts = [{"type": "text", "text": _NEEDLE}]
    list_content = not _shows(render, _NEEDLE, None) and _shows(render, parts, None)
    content = parts if list_content else _NEEDLE
    no_tools = _shows(render, content, None) or not _shows(render, content, [])
    listed: list[dict[str, Any]] | None = None if no_tools else []
    null_content = not _shows_call(render, "") and _shows_call(render, None)
    call_content: str | None = None if null_content else ""
    objects = _takes_objects(render, call_content)
    arguments: Any = _ARGUMENTS if objects else _AS_TEXT
    return TemplateTraits(
        object_arguments=objects,
        list_content=list_content,
        system_role=_knows_system(render, content, listed),
        late_system=_knows_late_system(render, list_content, listed),
        repeated_turns=_knows_repeated_turns(render, list_content, listed),
        null_content=null_content,
        descriptions=_needs_descriptions(render, content),
        calls=_NEEDLE in _render_call(render, arguments, call_content),
        parallel_calls=_OTHER in _render_call(render, arguments, call_content, another=True),
        no_tools=no_tools,
        efforts=_efforts(source, content, listed),
    )


Render = Callable[[list[dict[str, Any]], list[dict[str, Any]] | None], str]


def _rendered(
    template: jinja2.Template,
    messages: list[dict[str, Any]],
    tools: list[dict[str, Any]] | None,
    **kwargs: str,
) -> str:
    """The text; empty if the template rejects the messages."""
    values: dict[str, Any] = {
        **kwargs,
        "messages": messages,
        "tools": tools,
        "bos_token": "",
        "eos_token": "",
        "add_generation_prompt": True,
        "strftime_now": _no_date,
        "functions": "[]",
        "datetime": "2000-01-01",
    }
    try:
        return rendered(template, values)
    except TemplateError:
        return ""


def _efforts(source: str, content: Any, tools: list[dict[str, Any]] | None) -> tuple[str, ...]:
    if "reasoning_effort" not in source:
        return _PLAIN
    messages: list[dict[str, Any]] = [{"role": "user", "content": content}]
    words = [word for word in EFFORTS if word in _PLAIN or re.search(f"[\"']{word}[\"']", source)]
    template = compiled(source)
    return tuple(
        word for word in words if _NEEDLE in _rendered(template, messages, tools, reasoning_effort=word)
    )


def _no_date(date_format: str) -> str:
    del date_format
    return "2000-01-01"


def _shows(render: Render, content: Any, tools: list[dict[str, Any]] | None) -> bool:
    return _NEEDLE in render([{"role": "user", "content": content}], tools)


def _knows_system(render: Render, content: Any, tools: list[dict[str, Any]] | None) -> bool:
    return _NEEDLE in render([{"role": "system", "content": content}, _USER], tools)


def _knows_late_system(render: Render, list_content: bool, tools: list[dict[str, Any]] | None) -> bool:
    messages = [("system", "First."), ("system", _NEEDLE), ("user", "Hi."), ("assistant", "Hello.")]
    messages += [("system", _OTHER), ("user", "So?")]
    text = render([_turn(role, said, list_content) for role, said in messages], tools)
    return _NEEDLE in text and _OTHER in text


def _knows_repeated_turns(render: Render, list_content: bool, tools: list[dict[str, Any]] | None) -> bool:
    text = render([_turn("user", said, list_content) for said in (_NEEDLE, _OTHER)], tools)
    return _NEEDLE in text and _OTHER in text


def _turn(role: str, text: str, list_content: bool) -> dict[str, Any]:
    return {"role": role, "content": [{"type": "text", "text": text}] if list_content else text}


def _needs_descriptions(render: Render, content: Any) -> bool:
    bare = {"type": "object", "properties": {_KEY: {"type": "string"}}}
    tool = {"type": "function", "function": {"name": "probe", "parameters": bare}}
    messages = [{"role": "user", "content": content}]
    return _NEEDLE not in render(messages, [tool]) and _NEEDLE in render(messages, [_TOOL])


def _shows_call(render: Render, content: str | None) -> bool:
    return any(_NEEDLE in _render_call(render, arguments, content) for arguments in (_AS_TEXT, _ARGUMENTS))


def _takes_objects(render: Render, content: str | None) -> bool:
    """Whether arguments must be a mapping.

    Text is right where the template fails on a mapping, leaves it out or pastes Python's notation of it, and where it
    makes no difference but spaces: there, the model sees what it wrote.
    """
    as_text = "".join(_render_call(render, _AS_TEXT, content).split())
    as_object = "".join(_render_call(render, _ARGUMENTS, content).split())
    if _NEEDLE not in as_object:
        return _NEEDLE not in as_text
    pasted = "".join(repr(_ARGUMENTS).split()) in as_object
    return not (pasted or as_text == as_object)


def _render_call(render: Render, arguments: Any, content: str | None, *, another: bool = False) -> str:
    """Render a turn with one call, or two if `another`, and the results."""
    names = ["probe", _OTHER] if another else ["probe"]
    calls = [
        {"id": f"call0000{index}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for index, name in enumerate(names)
    ]
    results = [
        {"role": "tool", "tool_call_id": call["id"], "name": name, "content": "done"}
        for call, name in zip(calls, names, strict=True)
    ]
    return render([_USER, {"role": "assistant", "content": content, "tool_calls": calls}, *results], [_TOOL])
