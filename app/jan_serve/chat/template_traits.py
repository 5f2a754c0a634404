"""What a chat template takes and what it loses, told by rendering small conversations with it.

Templates do not say whether they want the arguments of a call as text or as a mapping, whether they know a system
message, or whether content has to be a list of parts. Each is tried once per template.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from jan_serve.chat.template_environment import compiled, rendered
from jan_serve.errors import TemplateError

_NEEDLE: Final = "needle-7f3a"
_OTHER: Final = "other-7f3b"
_KEY: Final = "key_of_needle"
_AS_TEXT: Final = f'{{"{_KEY}": "{_NEEDLE}"}}'
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateTraits:
    """object_arguments, list_content, null_content, descriptions: as in MessageForm.

    system_role: a system message is shown. calls: the calls of a turn are. parallel_calls: all of them, where there are
    several. no_tools: without tools, the list of them may be absent; else it has to be empty.
    """

    object_arguments: bool = True
    list_content: bool = False
    null_content: bool = False
    descriptions: bool = False
    system_role: bool = True
    calls: bool = True
    parallel_calls: bool = True
    no_tools: bool = True


@lru_cache(maxsize=32)
def traits_of(source: str) -> TemplateTraits:
    """The traits of a template, remembered. Renders it a few times. Raises TemplateError if it cannot be compiled."""
    template = compiled(source)

    def render(messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> str:
        values: dict[str, Any] = {
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

    parts = [{"type": "text", "text": _NEEDLE}]
    list_content = not _shows(render, _NEEDLE, None) and _shows(render, parts, None)
    content = parts if list_content else _NEEDLE
    no_tools = _shows(render, content, None) or not _shows(render, content, [])
    null_content = not _shows_call(render, "") and _shows_call(render, None)
    objects = _AS_TEXT not in _called(render, _AS_TEXT, None if null_content else "")
    arguments: Any = {_KEY: _NEEDLE} if objects else _AS_TEXT
    beside: str | None = None if null_content else ""
    return TemplateTraits(
        object_arguments=objects,
        list_content=list_content,
        system_role=_knows_system(render, content, None if no_tools else []),
        null_content=null_content,
        descriptions=_needs_descriptions(render, content),
        calls=_NEEDLE in _called(render, arguments, beside),
        parallel_calls=_OTHER in _called(render, arguments, beside, another=True),
        no_tools=no_tools,
    )


Render = Callable[[list[dict[str, Any]], list[dict[str, Any]] | None], str]


def _no_date(form: str) -> str:
    del form
    return "2000-01-01"


def _shows(render: Render, content: Any, tools: list[dict[str, Any]] | None) -> bool:
    return _NEEDLE in render([{"role": "user", "content": content}], tools)


def _knows_system(render: Render, content: Any, tools: list[dict[str, Any]] | None) -> bool:
    return _NEEDLE in render([{"role": "system", "content": content}, _USER], tools)


def _needs_descriptions(render: Render, content: Any) -> bool:
    bare = {"type": "object", "properties": {_KEY: {"type": "string"}}}
    tool = {"type": "function", "function": {"name": "probe", "parameters": bare}}
    messages = [{"role": "user", "content": content}]
    return _NEEDLE not in render(messages, [tool]) and _NEEDLE in render(messages, [_TOOL])


def _shows_call(render: Render, content: str | None) -> bool:
    return any(_NEEDLE in _called(render, arguments, content) for arguments in (_AS_TEXT, {_KEY: _NEEDLE}))


def _called(render: Render, arguments: Any, content: str | None, *, another: bool = False) -> str:
    """A turn with a call, or with two, and the results."""
    names = ["probe", _OTHER] if another else ["probe"]
    calls = [
        {"id": f"call0000{at}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for at, name in enumerate(names)
    ]
    results = [
        {"role": "tool", "tool_call_id": call["id"], "name": name, "content": "done"}
        for call, name in zip(calls, names, strict=True)
    ]
    return render([_USER, {"role": "assistant", "content": content, "tool_calls": calls}, *results], [_TOOL])
