"""Probes the inputs that a chat template accepts and shows, by rendering small conversations with it.

Templates do not declare whether call arguments are text or a mapping, whether they support a system message, or whether
content must be a list of parts.
"""

from __future__ import annotations

import itertools
import json
import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

import jinja2
import msgspec
from msgspec.structs import replace

from jan_serve.chat.detect import knows_tools
from jan_serve.chat.template_sandbox import compiled, rendered
from jan_serve.errors import TemplateError, ran_out_of_memory

_NEEDLE: Final = "needle-7f3a"
_OTHER: Final = "other-7f3b"
_DONE: Final = "done-7f3c"
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
_CALLED: Final = ("user Hi.", "call", "result done")
_ANSWERED: Final = ("user Hi.", "call", f"result {_DONE}")
_OTHER_ID: Final = "call00001"
PROBE_ID: Final = "call00000"
"""The id of the call in `TemplateTraits.call_opening`."""

EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""The words of requests for `reasoning_effort`, in order."""

_NO_EFFORTS: Final = ("no_think",)
PLAIN_EFFORTS: Final = {"minimal": "low", "xhigh": "high", "max": "high"}
"""What a template sees in place of words that few models were trained with, unless it names them."""

_PLAIN: Final = tuple(word for word in EFFORTS if word not in PLAIN_EFFORTS)


class TemplateTraits(msgspec.Struct, frozen=True, kw_only=True):
    """The input that a template requires, and the parts of it that it shows.

    object_arguments: arguments of calls as mappings; else as JSON text. list_content: content as a list of parts.
    null_content: the content of a turn with calls is null, not "". tools: listed tools are shown, where the
    template reads any. system_for_tools: only beside a system message. system_role: a system message is shown.
    late_system: so are a second one, one after an answer (behind it), and one between two turns of the user.
    system_before_results: it is where results come last. repeated_turns: two turns of the user in a row are shown,
    also with a call and its result between. any_start: a history may begin with a call or an answer, or have a
    system message only. empty_turns: an answer may be empty. calls: a turn's calls are shown. calls_alone: without
    a list of tools too. results: results are, where calls are not. parallel_calls: all calls are. calls_last: so
    are those at the end of a history. call_opening: what precedes the name of a turn's first call, or its arguments
    if they come before the name (not name_first); None where a turn's text is shown before its calls.
    orphan_results: results that follow no call are shown, and those of unknown calls. short_ids: ids of calls must
    have nine letters and digits. no_tools: without tools, `tools` may be None; else it must be an empty list.
    efforts: the words that may be in `reasoning_effort`: those of PLAIN_EFFORTS only if the template names them.
    no_effort: the word for no thought.
    """

    object_arguments: bool = True
    list_content: bool = False
    null_content: bool = False
    tools: bool = True
    system_for_tools: bool = False
    system_role: bool = True
    late_system: bool = True
    system_before_results: bool = True
    repeated_turns: bool = True
    any_start: bool = True
    empty_turns: bool = True
    calls: bool = True
    calls_alone: bool = True
    results: bool = True
    parallel_calls: bool = True
    call_opening: str | None = None
    name_first: bool = True
    orphan_results: bool = True
    calls_last: bool = True
    short_ids: bool = False
    no_tools: bool = True
    efforts: tuple[str, ...] = _PLAIN
    no_effort: str | None = None


@lru_cache(maxsize=128)
def traits_of(source: str) -> TemplateTraits:
    """The traits of a template, cached. Renders it some thirty times. Raises TemplateError if it does not compile."""
    user = f"user {_NEEDLE}"
    probe = _Probe(compiled(source))
    takes_text, takes_parts = probe.shows(user), replace(probe, list_content=True).shows(user)
    as_parts = takes_parts and not takes_text
    probe = replace(probe, list_content=as_parts)
    no_tools = probe.shows(user) or not replace(probe, no_tools=[]).shows(user)
    alone = "probe" in probe.text("user Hi.", with_tool=True)
    beside_system = "probe" in probe.text("system Hi.", "user Hi.", with_tool=True)
    tools = alone or beside_system or not knows_tools(source)
    probe = replace(probe, no_tools=None if no_tools else [], lists_tools=tools)
    probe = _with_call_content(probe, not as_parts, takes_parts)
    probe = replace(probe, arguments=_ARGUMENTS if _takes_objects(probe) else _AS_TEXT)
    calls = probe.shows(*_CALLED)
    of_calls = _traits_of_calls(probe) if calls else {}
    return TemplateTraits(
        object_arguments=probe.arguments is _ARGUMENTS,
        list_content=probe.list_content,
        null_content=probe.call_content is None,
        no_tools=no_tools,
        efforts=_efforts(source, probe, _PLAIN, EFFORTS),
        no_effort=next(iter(_efforts(source, probe, (), _NO_EFFORTS)), None),
        tools=tools,
        system_for_tools=beside_system and not alone,
        calls=calls,
        results=of_calls.get("calls_alone", False)
        or probe.shows("user Hi.", "assistant Hello.", f"result {_NEEDLE}", "user So?"),
        parallel_calls=_OTHER in probe.text("user Hi.", "calls", f"result {_DONE}", f"another {_DONE}"),
        **_traits_of_turns(probe, calls),
        **of_calls,
    )


class _Probe(msgspec.Struct, frozen=True):
    """Renders histories of `role text`, whose text is a needle if the template must show it.

    `call` is a turn with a call whose arguments have the first needle, and the text beside it; `result` is that call's,
    `orphan` one of no call. `calls` has a second call, and `another` is its result. no_tools: `tools` without any.
    lists_tools: else `tools` is that always.
    """

    template: jinja2.Template
    no_tools: list[dict[str, Any]] | None = None
    lists_tools: bool = True
    list_content: bool = False
    call_content: Any = ""
    arguments: Any = _AS_TEXT

    def text(
        self, *turns: str, call_id: str = PROBE_ID, with_tool: bool | None = None, **variables: str
    ) -> str:
        """The text; empty if the template rejects the turns. with_tool: list the tool; None: if there is a call."""
        if with_tool is None:
            with_tool = any(turn.startswith(("call", "result", "orphan")) for turn in turns)
        tools = [_TOOL] if with_tool and self.lists_tools else self.no_tools
        values: dict[str, Any] = {
            **variables,
            "messages": [self._message(turn, call_id) for turn in turns],
            "tools": tools,
            "bos_token": "",
            "eos_token": "",
            "add_generation_prompt": True,
            "strftime_now": datetime(2000, 1, 1, tzinfo=UTC).strftime,
            "functions": json.dumps([tool["function"] for tool in tools or ()]),
            "datetime": "Jan 01 2000",
            "date_string": "01 Jan 2000",
        }
        try:
            return rendered(self.template, values)
        except TemplateError as error:
            if ran_out_of_memory(error):
                raise  # it says nothing of the template, whose traits are kept
            return ""

    def shows(self, *turns: str, with_tool: bool | None = None) -> bool:
        """Whether all needles are shown."""
        text = self.text(*turns, with_tool=with_tool)
        wanted = {needle for needle in (_NEEDLE, _OTHER) for turn in turns if needle in turn}
        wanted |= {_NEEDLE for turn in turns if turn.startswith("call")}
        return all(needle in text for needle in wanted)

    def _message(self, turn: str, call_id: str) -> dict[str, Any]:
        role, _, text = turn.partition(" ")
        content: Any = [{"type": "text", "text": text}] if self.list_content else text
        match role:
            case "call" | "calls":
                named = {call_id: "probe"} if role == "call" else {call_id: "probe", _OTHER_ID: _OTHER}
                calls = [
                    {"id": own, "type": "function", "function": {"name": name, "arguments": self.arguments}}
                    for own, name in named.items()
                ]
                content = content if text else self.call_content
                return {"role": "assistant", "content": content, "tool_calls": calls}
            case "result":
                return {"role": "tool", "content": content, "tool_call_id": call_id, "name": "probe"}
            case "another":
                return {"role": "tool", "content": content, "tool_call_id": _OTHER_ID, "name": _OTHER}
            case "orphan":
                return {"role": "tool", "content": content, "tool_call_id": "unknown00"}
            case _:
                return {"role": role, "content": content}


def _traits_of_turns(probe: _Probe, calls: bool) -> dict[str, Any]:
    system_role = probe.shows(f"system {_NEEDLE}", "user Hi.")
    late = ("assistant Hello.", f"system {_OTHER}", "user So?")
    repeated = probe.shows(f"user {_NEEDLE}", f"user {_OTHER}") and (
        not calls or probe.shows(*_CALLED, f"user {_OTHER}")
    )
    return {
        "system_role": system_role,
        "late_system": probe.shows("system First.", f"system {_NEEDLE}", "user Hi.", *late)
        and probe.shows("user Hi.", f"system {_NEEDLE}", f"user {_OTHER}")
        and _OTHER not in probe.text("system First.", f"user {_NEEDLE}", *late).partition(_NEEDLE)[0],
        "system_before_results": not (system_role and calls) or probe.shows(f"system {_OTHER}", *_CALLED),
        "repeated_turns": repeated,
        # Where roles must alternate, that gives a first answer its question.
        "any_start": (not repeated or probe.shows(f"assistant {_NEEDLE}", f"user {_OTHER}"))
        and (not system_role or probe.shows(f"system {_NEEDLE}", with_tool=True))
        and (not calls or probe.shows("call", f"result {_OTHER}")),
        "empty_turns": probe.shows("user Hi.", "assistant", f"user {_NEEDLE}"),
    }


def _traits_of_calls(probe: _Probe) -> dict[str, Any]:
    """Those that count only where calls are shown."""
    return {
        "calls_alone": _NEEDLE in probe.text(*_CALLED, with_tool=False),
        **_call_opening(probe),
        "orphan_results": probe.shows("user Hi.", f"orphan {_NEEDLE}", "assistant So.", f"orphan {_OTHER}")
        and probe.shows(*_CALLED, f"orphan {_OTHER}")
        and probe.shows("user Hi.", "call", f"orphan {_OTHER}"),
        "calls_last": probe.shows("user Hi.", "call"),
        "short_ids": any(
            _NEEDLE not in probe.text(*_CALLED, call_id=each) for each in ("call_0-of-7", "call_0")
        ),
    }


def _call_opening(probe: _Probe) -> dict[str, Any]:
    # An answer after the results: where one follows, gpt-oss's template leaves such text out. DeepSeek V3's leaves it
    # out of all turns with calls but the first.
    turn = (f"call {_OTHER}", "result done", "assistant So.", "user So?")
    both = probe.text("user Hi.", *turn)
    if (
        0 <= both.find(_OTHER) < both.find(_NEEDLE)
        and probe.text("user Hi.", *turn, *turn).count(_OTHER) == 2
    ):
        return {}
    called = probe.text(*_CALLED)
    answer = probe.text("user Hi.", "assistant So.", with_tool=True)
    pairs = zip(called, answer, strict=False)
    same = "".join(one for one, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
    # Where the two part in the middle of a tag, the tag belongs to the call.
    opening = called[len(re.sub(r"<[^<>]*$", "", same)) :].partition("probe")[0]
    before_arguments, key, _ = opening.partition(_KEY)
    if not key:
        return {"call_opening": opening}
    return {"call_opening": before_arguments[: before_arguments.rfind("{")], "name_first": False}


def _efforts(source: str, probe: _Probe, usual: tuple[str, ...], known: tuple[str, ...]) -> tuple[str, ...]:
    """Those of `known` that the template takes. usual: the words that it need not name."""
    if "reasoning_effort" not in source:
        return usual
    words = [word for word in known if word in usual or re.search(f"[\"']{word}[\"']", source)]
    return tuple(word for word in words if _NEEDLE in probe.text(f"user {_NEEDLE}", reasoning_effort=word))


def _with_call_content(probe: _Probe, as_text: bool, as_parts: bool) -> _Probe:
    """The probe with the empty content of a turn with calls: text, null, or a list of parts, as all content is then.
    The first with which the template shows a call and its result, else a call. as_text, as_parts: what it takes."""
    forms = (
        [replace(probe, list_content=False, call_content=content) for content in ("", None)]
        if as_text
        else []
    )
    if as_parts:
        forms.append(replace(probe, list_content=True, call_content=[{"type": "text", "text": ""}]))

    def shown(form: _Probe) -> tuple[bool, bool]:
        texts = [replace(form, arguments=arguments).text(*_ANSWERED) for arguments in (_AS_TEXT, _ARGUMENTS)]
        with_call = [text for text in texts if _NEEDLE in text]
        return bool(with_call), any(_DONE in text for text in with_call)

    return max(forms, key=shown)


def _takes_objects(probe: _Probe) -> bool:
    """Whether arguments must be a mapping.

    Text is right where the template fails on a mapping, leaves it out or pastes Python's notation of it, and where it
    makes no difference but spaces: there, the model sees what it wrote.
    """
    as_text, as_object = (
        "".join(replace(probe, arguments=arguments).text(*_ANSWERED).split())
        for arguments in (_AS_TEXT, _ARGUMENTS)
    )
    if _NEEDLE not in as_object:
        return _NEEDLE not in as_text
    pasted = "".join(repr(_ARGUMENTS).split()) in as_object
    return not (pasted or as_text == as_object)
