"""The plan of a chat answer: its constraint for the engine, and the parsers of the model's format."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from jan_serve.chat.call_ids import CallIds, ids_in
from jan_serve.chat.chat_format import ChatFormat
from jan_serve.chat.stream_parser import StreamParser
from jan_serve.core.constraint import CompiledGrammar, Constraint
from jan_serve.core.events import Finished, ReasoningDelta, TextDelta, ToolCallDelta
from jan_serve.core.guide import CallGrammars, Guide, ThoughtGuide, Trigger
from jan_serve.core.messages import Tool
from jan_serve.core.request import ChatPrompt
from jan_serve.errors import InvalidRequest
from jan_serve.generation.constraint.grammar_cache import GrammarCache

_AFTER_THOUGHT: Final = "\n\n"
_ID_BYTES: Final = 12
_NAME: Final = re.compile(r"[\w.\-:/]+")

ChoiceEvent = TextDelta | ReasoningDelta | ToolCallDelta | Finished


def usable_tools(prompt: ChatPrompt) -> tuple[Tool, ...]:
    """The tools that an answer may call.

    Raises InvalidRequest if `tool_choice` needs a tool that is not there, and for a name that models cannot write in
    every notation.
    """
    choice = prompt.tool_choice
    if choice.mode == "none":
        return ()
    unusable = next((tool.name for tool in prompt.tools if not _NAME.fullmatch(tool.name)), None)
    if unusable is not None:
        raise InvalidRequest(
            f"tools: the name {unusable[:100]!r} may have letters, digits, and `_-.:/` only", param="tools"
        )
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
    """A grammar for the whole answer, or a guide. warnings: as in Started."""

    grammar: CompiledGrammar | None = None
    guide: Guide | None = None
    warnings: tuple[str, ...] = ()


async def constrain_answer(
    prompt: ChatPrompt,
    chat_format: ChatFormat,
    thought: ThoughtGuide | None,
    constraint: Constraint | None,
    grammars: GrammarCache,
) -> AnswerConstraint:
    """The constraint from the tools and the request's own constraint. Raises as GrammarCache and `usable_tools`.

    thought: as `thought_guide` returns it for the rendered prompt.
    """
    tools = usable_tools(prompt)
    if tools:
        forced = prompt.tool_choice.mode != "auto"
        calls = await grammars.compile_calls(
            chat_format,
            tools,
            parallel=prompt.parallel_tool_calls,
            constraint=None if forced else constraint,
        )
        if forced or constraint is not None:
            guide = Guide(
                thought=_only_open(thought) if forced else thought,
                lead_after_thought=chat_format.calls.after_thought or _AFTER_THOUGHT,
                grammar=calls.whole,
            )
        else:
            guide = _free_until_call(prompt, chat_format, thought, calls)
        return AnswerConstraint(guide=guide, warnings=calls.warnings)
    if constraint is None:
        return AnswerConstraint(guide=None if thought is None else Guide(thought=thought))
    grammar = await grammars.compile(constraint)
    if thought is None and not chat_format.text_opens:
        return AnswerConstraint(grammar=grammar)
    lead_after_thought = chat_format.calls.after_thought + chat_format.text_opens or _AFTER_THOUGHT
    return AnswerConstraint(
        guide=Guide(
            thought=thought,
            lead=chat_format.text_opens,
            lead_after_thought=lead_after_thought,
            grammar=grammar,
        )
    )


def _only_open(thought: ThoughtGuide | None) -> ThoughtGuide | None:
    """A required call comes first; only a thought that the prompt opened may precede it."""
    return thought if thought is not None and thought.is_open else None


def _free_until_call(
    prompt: ChatPrompt, chat_format: ChatFormat, thought: ThoughtGuide | None, calls: CallGrammars
) -> Guide:
    layout = chat_format.calls
    triggers = zip(layout.triggers, calls.triggered, strict=True)
    names = (
        tuple(tool.name + layout.confirmed_by for tool in usable_tools(prompt)) if layout.confirmed_by else ()
    )
    return Guide(
        thought=thought,
        triggers=tuple(Trigger(text, grammar, names) for text, grammar in triggers),
        at_start=layout.at_start,
        repeat=prompt.parallel_tool_calls and layout.parallel,
    )


def thought_guide(
    prompt: ChatPrompt, chat_format: ChatFormat, template: str | None, text: str
) -> ThoughtGuide | None:
    """Where the answer to the rendered `text` may contain thoughts; None if the model has none."""
    thought = chat_format.thought
    is_open = chat_format.prompt_opens_thought(text)
    if thought is None or not (is_open or thought.is_in(template)):
        return None
    closed = any(text.rstrip().endswith(mark.strip()) for mark in thought.closes)
    thinks = prompt.asks_for_thoughts
    if thinks is None:
        thinks = _thinks_by_default(chat_format, template)
    return ThoughtGuide(
        opens=tuple(mark.strip() for mark in thought.opens),
        closes=tuple(mark.strip() for mark in thought.closes),
        ends=thought.ends,
        is_open=is_open,
        anywhere=thought.anywhere,
        may_open=thinks and not closed,
        budget=prompt.reasoning_budget,
    )


@lru_cache(maxsize=32)
def _thinks_by_default(chat_format: ChatFormat, template: str | None) -> bool:
    """Whether the model opens thoughts by default: its template can write an empty one to prevent that, or all its
    answers are on channels."""
    thought = chat_format.thought
    if thought is None:
        return False
    if chat_format.text_opens and not thought.anywhere:
        return True
    empty = rf"{re.escape(thought.opens[0].strip())}(\s|\\n)*{re.escape(thought.closes[0].strip())}"
    return re.search(empty, template or "") is not None


class AnswerParsers:
    """Parses the choices of one answer into text, reasoning and calls. Pure except for random call ids."""

    def __init__(self, prompt: ChatPrompt, chat_format: ChatFormat, *, starts_in_thought: bool) -> None:
        self._prompt = prompt
        self._chat_format = chat_format
        self._tools: Sequence[Tool] = usable_tools(prompt)
        self._starts_in_thought = starts_in_thought
        self._ids = CallIds(chat_format.id_style, ids_in(prompt.messages), _random_id)
        self._parsers: dict[int, StreamParser] = {}

    def read(self, event: TextDelta | Finished) -> list[ChoiceEvent]:
        """The events that this one becomes.

        A choice with calls finishes with `tool_calls`, unless a stop string cut the last one short.
        """
        parser = self._parsers.get(event.index)
        if parser is None:
            parser = self._parsers[event.index] = self._parser(event.index)
        if isinstance(event, TextDelta):
            return list(parser.feed(event.text, event.tokens))
        cut = event.reason != "stop" or event.stop is not None
        deltas: list[ChoiceEvent] = list(parser.finish(cut=cut))
        calls = parser.calls > 0 if event.stop is None else parser.has_whole_calls
        if calls and event.reason == "stop":
            event = msgspec.structs.replace(event, reason="tool_calls")
        return [*deltas, event]

    def _parser(self, index: int) -> StreamParser:
        return StreamParser(
            self._chat_format,
            self._ids,
            index=index,
            tools=self._tools,
            split_thoughts=self._prompt.split_thoughts,
            starts_in_thought=self._starts_in_thought,
        )


def _random_id() -> str:
    return secrets.token_hex(_ID_BYTES)
