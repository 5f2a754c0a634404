"""The plan of the answer to a chat: its tools, its constraint for the engine, and the parsers of the model's format."""

from __future__ import annotations

import re
from functools import lru_cache, partial
from typing import Final, NamedTuple

import msgspec

from jan_serve.chat.call_form import in_form
from jan_serve.chat.call_layout import CallIds, ids_in
from jan_serve.chat.chat_format import ChatFormat, StreamParser
from jan_serve.chat.chatml import CHATML, CHATML_TURN_END
from jan_serve.chat.detect import detect_format
from jan_serve.core.constraint import CallGrammars, Constraint, Guide, ThoughtGuide, Trigger
from jan_serve.core.events import Finished, ReasoningDelta, TextDelta, ToolCallDelta
from jan_serve.core.messages import CallForm, Tool
from jan_serve.core.request import ChatPrompt, StopConditions
from jan_serve.core.transcript import random_hex
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
    among = frozenset((choice.name,)) if choice.mode == "named" else choice.among
    missing = sorted(map(str, (among or frozenset()) - {tool.name for tool in prompt.tools}))
    if missing:
        raise InvalidRequest(f"tool_choice: no tool is named {missing[0][:100]!r}", param="tool_choice")
    return tuple(_plain(tool) for tool in prompt.tools if among is None or tool.name in among)


def _plain(tool: Tool, *unshown: str) -> Tool:
    """Without what some languages write for nothing: a list of no properties, a null in place of a keyword."""
    parameters = {
        key: value for key, value in tool.parameters.items() if value is not None and key not in unshown
    }
    if parameters.get("properties") == []:
        parameters["properties"] = {}
    return tool if parameters == tool.parameters else msgspec.structs.replace(tool, parameters=parameters)


class ChatPlan(NamedTuple):
    """What is decided about the answer to a chat before its prompt is rendered. Pure but for its parsers' call ids.

    template: the one that renders it; None is ChatML. tools: those that the answer may call.
    """

    prompt: ChatPrompt
    template: str | None
    chat_format: ChatFormat
    tools: tuple[Tool, ...]

    @classmethod
    def of(cls, prompt: ChatPrompt, template: str | None) -> ChatPlan:
        """Raises as `usable_tools`."""
        return cls(prompt, template, detect_format(template), usable_tools(prompt))

    @property
    def shown_tools(self) -> tuple[Tool, ...]:
        """What the template sees: all, also where some may be called, so that the prompt stays in the prefix cache.
        `$schema` names the schema's draft. It is useless to a model and confuses small ones."""
        return tuple(_plain(tool, "$schema") for tool in self.prompt.tools) if self.tools else ()

    def turn_end(self, stopping: StopConditions) -> str | None:
        """The text that ends the model's turn, where no token may do so.

        None if the client itself stops at it, or would be shown it.
        """
        if self.template not in (None, CHATML) or CHATML_TURN_END in stopping.stop:
            return None
        is_shown = stopping.ignore_eos or stopping.include_stop or stopping.stop_at_token_end
        return None if is_shown else CHATML_TURN_END

    def in_form(self, form: CallForm | None) -> ChatPlan:
        """The plan with calls in the form of the template."""
        return self._replace(chat_format=in_form(self.chat_format, form))

    def thought_guide(self, text: str) -> ThoughtGuide | None:
        """Where the answer to the rendered `text` may contain thoughts; None if the model has none."""
        thought = self.chat_format.thought
        is_open = self.chat_format.prompt_opens_thought(text)
        if thought is None or not (is_open or thought.is_in(self.template)):
            return None
        closed = any(text.rstrip().endswith(mark.strip()) for mark in thought.closes)
        thinks = self.prompt.asks_for_thoughts
        if thinks is None:
            thinks = _thinks_by_default(self.chat_format, self.template)
        return ThoughtGuide(
            opens=tuple(mark.strip() for mark in thought.opens),
            closes=tuple(mark.strip() for mark in thought.closes),
            ends=thought.ends,
            is_open=is_open,
            anywhere=thought.anywhere,
            may_open=thinks and not closed,
            budget=self.prompt.reasoning_budget,
        )

    async def constrained(
        self, thought: ThoughtGuide | None, constraint: Constraint | None, grammars: GrammarCache
    ) -> tuple[Guide | None, tuple[str, ...]]:
        """The guide from the tools and the request's constraint, and warnings as in Started. Raises as GrammarCache.

        thought: the guide for the rendered prompt.
        """
        if self.tools:
            return await self._calls_or_answer(thought, constraint, grammars)
        if constraint is None:
            return (None if thought is None else Guide(thought=thought)), ()
        grammar, lead = await grammars.compile(constraint), self.chat_format.text_opens
        after_thought = self.chat_format.calls.after_thought + lead or _AFTER_THOUGHT
        return Guide(thought=thought, lead=lead, lead_after_thought=after_thought, grammar=grammar), ()

    async def _calls_or_answer(
        self, thought: ThoughtGuide | None, constraint: Constraint | None, grammars: GrammarCache
    ) -> tuple[Guide, tuple[str, ...]]:
        forced = self.prompt.tool_choice.mode != "auto"
        calls = await grammars.compile_calls(
            self.chat_format,
            self.tools,
            parallel=self.prompt.parallel_tool_calls,
            constraint=None if forced else constraint,
        )
        if not forced and constraint is None:
            return self._free_until_call(thought, calls), calls.warnings
        if forced and thought is not None and not thought.is_open:
            thought = (
                None  # a required call comes first; only a thought that the prompt opened may precede it
            )
        after_thought = self.chat_format.calls.after_thought or _AFTER_THOUGHT
        return Guide(thought=thought, lead_after_thought=after_thought, grammar=calls.whole), calls.warnings

    def _free_until_call(self, thought: ThoughtGuide | None, calls: CallGrammars) -> Guide:
        layout = self.chat_format.calls
        names = tuple(tool.name + layout.confirmed_by for tool in self.tools) if layout.confirmed_by else ()
        triggers = zip(layout.triggers, calls.triggered, strict=True)
        return Guide(
            thought=thought,
            triggers=tuple(Trigger(text, grammar, names) for text, grammar in triggers),
            at_start=layout.at_start,
            repeat=self.prompt.parallel_tool_calls and layout.parallel,
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
    """Parses the choices of one answer into text, reasoning and calls. Pure, but for random ids of calls."""

    def __init__(self, plan: ChatPlan, *, starts_in_thought: bool, turn_end: str | None = None) -> None:
        """turn_end: a stop string that is not the client's."""
        self._plan = plan
        self._turn_end = turn_end
        self._starts_in_thought = starts_in_thought
        self._ids = CallIds(
            plan.chat_format.id_style, ids_in(plan.prompt.messages), partial(random_hex, _ID_BYTES)
        )
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
        if event.stop is not None and event.stop == self._turn_end:
            event = msgspec.structs.replace(event, stop=None)
        cut = event.reason != "stop" or event.stop is not None
        deltas: list[ChoiceEvent] = list(parser.finish(cut=cut))
        calls = parser.calls > 0 if event.stop is None else parser.has_whole_calls
        if calls and event.reason == "stop":
            event = msgspec.structs.replace(event, reason="tool_calls")
        return [*deltas, event]

    def _parser(self, index: int) -> StreamParser:
        return StreamParser(
            self._plan.chat_format,
            self._ids,
            index=index,
            tools=self._plan.tools,
            split_thoughts=self._plan.prompt.split_thoughts,
            starts_in_thought=self._starts_in_thought,
        )
