"""What a chat answer is held to and how it is read: the model's format, the guide for the engine, the parsers."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from jan_serve.chat.call_ids import CallIds, ids_in
from jan_serve.chat.chat_format import ChatFormat, Thought
from jan_serve.chat.stream_parser import StreamParser
from jan_serve.core.constraint import CompiledGrammar, Constraint
from jan_serve.core.events import Finished, ReasoningDelta, TextDelta, ToolCallDelta
from jan_serve.core.guide import CallGrammars, Guide, ThoughtGuide, Trigger
from jan_serve.core.messages import Tool
from jan_serve.core.request import ChatPrompt
from jan_serve.errors import InvalidRequest
from jan_serve.generation.constraint.compiler import ConstraintCompiler

_BEHIND_THOUGHT: Final = "\n\n"
_ID_BYTES: Final = 12

ChoiceEvent = TextDelta | ReasoningDelta | ToolCallDelta | Finished


def usable_tools(prompt: ChatPrompt) -> tuple[Tool, ...]:
    """The tools that an answer may call. Raises InvalidRequest for a choice that no tool fulfils."""
    choice = prompt.tool_choice
    if choice.mode == "none":
        return ()
    if choice.mode != "auto" and not prompt.tools:
        raise InvalidRequest(
            f"tool_choice: `{choice.mode}` needs tools, and there are none", param="tool_choice"
        )
    if choice.mode != "named":
        return prompt.tools
    named = tuple(tool for tool in prompt.tools if tool.name == choice.name)
    if not named:
        raise InvalidRequest(f"tool_choice: no tool is named {choice.name!r}", param="tool_choice")
    return named


class AnswerConstraint(NamedTuple):
    """What the engine is told of an answer: a grammar for all of it, or a guide. warnings: as in Started."""

    grammar: CompiledGrammar | None = None
    guide: Guide | None = None
    warnings: tuple[str, ...] = ()


async def constrain_answer(
    prompt: ChatPrompt,
    form: ChatFormat,
    thought: ThoughtGuide | None,
    constraint: Constraint | None,
    compiler: ConstraintCompiler,
) -> AnswerConstraint:
    """How the engine holds an answer to its tools and its constraint. Raises as ConstraintCompiler and `usable_tools`.

    thought: as `thought_guide` found it in the rendered prompt.
    """
    tools = usable_tools(prompt)
    if tools:
        forced = prompt.tool_choice.mode != "auto"
        calls = await compiler.calls(
            form,
            tools,
            parallel=prompt.parallel_tool_calls,
            constraint=None if forced else constraint,
        )
        if forced or constraint is not None:
            guide = Guide(
                thought=_only_open(thought) if forced else thought,
                lead_after_thought=form.calls.after_thought or _BEHIND_THOUGHT,
                grammar=calls.whole,
            )
        else:
            guide = _free_until_call(prompt, form, thought, calls)
        return AnswerConstraint(guide=guide, warnings=calls.warnings)
    if constraint is None:
        return AnswerConstraint(guide=None if thought is None else Guide(thought=thought))
    grammar = await compiler.compile(constraint)
    if thought is None and not form.text_opens:
        return AnswerConstraint(grammar=grammar)
    behind = form.calls.after_thought + form.text_opens or _BEHIND_THOUGHT
    return AnswerConstraint(
        guide=Guide(thought=thought, lead=form.text_opens, lead_after_thought=behind, grammar=grammar)
    )


def _only_open(thought: ThoughtGuide | None) -> ThoughtGuide | None:
    """A call that is asked for comes first; only a thought that the prompt opened comes before it."""
    return thought if thought is not None and thought.is_open else None


def _free_until_call(
    prompt: ChatPrompt, form: ChatFormat, thought: ThoughtGuide | None, calls: CallGrammars
) -> Guide:
    layout = form.calls
    triggers = zip(layout.triggers, calls.triggered, strict=True)
    return Guide(
        thought=thought,
        triggers=tuple(Trigger(text, grammar) for text, grammar in triggers),
        at_start=layout.at_start,
        repeat=prompt.parallel_tool_calls and layout.parallel,
    )


def thought_guide(
    prompt: ChatPrompt, form: ChatFormat, template: str | None, text: str
) -> ThoughtGuide | None:
    """Where the answer to the rendered `text` may hold thoughts; None where the model has none."""
    thought = form.thought
    is_open = form.prompt_opens_thought(text)
    if thought is None or not (is_open or _teaches(template, thought)):
        return None
    closed = any(text.rstrip().endswith(mark.strip()) for mark in thought.closes)
    wanted = prompt.template_kwargs.get("enable_thinking")
    if wanted is None:
        wanted = _thinks_by_default(form, template)
    return ThoughtGuide(
        opens=tuple(mark.strip() for mark in thought.opens),
        closes=tuple(mark.strip() for mark in thought.closes),
        ends=thought.ends,
        is_open=is_open,
        anywhere=thought.anywhere,
        may_open=bool(wanted) and not closed,
        budget=prompt.reasoning_budget,
    )


@lru_cache(maxsize=32)
def _thinks_by_default(form: ChatFormat, template: str | None) -> bool:
    """Whether the model opens thoughts unasked: its template writes an empty one to keep it from that, or it writes all
    its answers on channels."""
    thought = form.thought
    if thought is None:
        return False
    if form.text_opens and not thought.anywhere:
        return True
    empty = rf"{re.escape(thought.opens[0].strip())}(\s|\\n)*{re.escape(thought.closes[0].strip())}"
    return re.search(empty, template or "") is not None


def _teaches(template: str | None, thought: Thought) -> bool:
    return any(mark.strip() in (template or "") for mark in (*thought.opens, *thought.closes))


class AnswerParsers:
    """Reads the choices of one answer: text in, text, reasoning and calls out. Pure but for the ids it draws."""

    def __init__(self, prompt: ChatPrompt, form: ChatFormat, *, starts_in_thought: bool) -> None:
        self._prompt = prompt
        self._form = form
        self._tools: Sequence[Tool] = usable_tools(prompt)
        self._starts_in_thought = starts_in_thought
        self._ids = CallIds(form.id_style, ids_in(prompt.messages), _draw)
        self._parsers: dict[int, StreamParser] = {}

    def read(self, event: TextDelta | Finished) -> list[ChoiceEvent]:
        """What the event comes to; a choice that made calls ends for `tool_calls`."""
        parser = self._parsers.get(event.index)
        if parser is None:
            parser = self._parsers[event.index] = self._parser(event.index)
        if isinstance(event, TextDelta):
            return list(parser.feed(event.text, event.tokens))
        deltas: list[ChoiceEvent] = list(parser.finish())
        called = parser.calls > 0 and event.reason == "stop"
        return [*deltas, msgspec.structs.replace(event, reason="tool_calls") if called else event]

    def _parser(self, index: int) -> StreamParser:
        return StreamParser(
            self._form,
            self._ids,
            index=index,
            tools=self._tools,
            split_thoughts=self._prompt.split_thoughts,
            starts_in_thought=self._starts_in_thought,
        )


def _draw() -> str:
    return secrets.token_hex(_ID_BYTES)
