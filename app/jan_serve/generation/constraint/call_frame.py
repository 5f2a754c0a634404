"""All that a model's format writes around the arguments of calls, with a hole for each tool's arguments.

Pure: runs in the compiling process; the server calls GrammarCache.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from jan_serve.chat.call_layout import (
    CALL_ID_PATTERN,
    INDEX_PATTERN,
    CallLayout,
    GemmaArguments,
    JsonArguments,
    NestedTagArguments,
    Parts,
    Slot,
    TaggedArguments,
)
from jan_serve.chat.chat_format import ChatFormat
from jan_serve.constraint.ast import EMPTY, Expr, Grammar, Literal, RuleRef, choice, repeat, sequence
from jan_serve.constraint.enforce import print_open
from jan_serve.constraint.lark.references import by_content
from jan_serve.constraint.regex.language import translate
from jan_serve.constraint.rules import RuleBuilder
from jan_serve.core.constraint import CallFrame, CallMarks
from jan_serve.core.uniqueness import CallLocations
from jan_serve.generation.constraint.tool_grammar import has_free_text, spelled_texts

_WORDS: Final = {
    Slot.IS_STRING: "(?:true|false)",
    Slot.JSON_TYPE: "[a-z]+",
    Slot.INDEX: f"(?:{INDEX_PATTERN})",
    Slot.CALL_ID: CALL_ID_PATTERN,
}


def call_marks(layout: CallLayout) -> CallMarks:
    """The marks of a layout with raw texts. Raises ValueError for any other."""
    before_name, after_name = _around_name(layout.call)
    before_key, key, after_key, end = _around_key(layout)
    return CallMarks(
        before_name=re.escape(before_name),
        after_name=re.escape(after_name) if after_name else "(?=[<{])",
        before_key=before_key,
        key=key,
        after_key=after_key,
        stop=end.strip(),
        gap=end[: len(end) - len(end.lstrip())],
    )


def starts(layout: CallLayout) -> tuple[str, ...]:
    """What is before the name after each trigger, as a regular expression."""
    texts = (_around_name(layout.after(trigger))[0] for trigger in layout.triggers)
    return tuple(re.escape(text) or "(?:)" for text in texts)


def call_locations(layout: CallLayout) -> tuple[CallLocations, ...]:
    """Where a layout has JSON arguments: in the whole text, and in what follows each trigger."""
    name, arguments = layout.call.index(Slot.NAME), layout.call.index(Slot.ARGUMENTS)
    before = _around_name(layout.call)[0]
    between = _pattern(layout.call[name + 1 : arguments])
    left = (_around_name(layout.after(trigger))[0] for trigger in layout.triggers)
    begun = (before[: max(len(before) - len(text), 0)] for text in left)
    return tuple(CallLocations(re.escape(before), between, text) for text in ("", *begun))


def _pattern(parts: Parts) -> str:
    return "".join(re.escape(part) if isinstance(part, str) else _WORDS[part] for part in parts)


def _around_name(parts: Parts) -> tuple[str, str]:
    """The line of text before the last name of a call, and the text after it."""
    at = len(parts) - 1 - parts[::-1].index(Slot.NAME)
    before, after = parts[at - 1] if at else "", parts[at + 1]
    line = before.rpartition("\n")[2] if isinstance(before, str) else ""
    return line, after if isinstance(after, str) else ""


def _around_key(layout: CallLayout) -> tuple[str, str, str, str]:
    """What is before, in and after a key, as regular expressions, and what is after the value."""
    syntax = layout.arguments
    match syntax:
        case TaggedArguments(argument=parts):
            key, value = parts.index(Slot.KEY), parts.index(Slot.VALUE)
            return _pattern(parts[:key]), ".+?", _pattern(parts[key + 1 : value]), str(parts[value + 1])
        case GemmaArguments(quote=quote):
            # Texts in arrays have no key.
            return "(?:[{,]", r"[^{},:\[\]<]+", f":)?{re.escape(quote)}", quote
        case NestedTagArguments(prefix=prefix):
            frame = (layout.opening, str(layout.call[0]))
            others = "|".join(re.escape(text.removeprefix(f"{prefix}<").strip()) for text in frame)
            return re.escape(f"{prefix}<"), f"(?!/|{others}).+?", ">", prefix
        case _:
            raise ValueError("JSON arguments have no raw texts")


_ANSWER: Final = "answer"
_OF_A_TOOL: Final = (Slot.NAME, Slot.ARGUMENTS)


def call_frame(chat_format: ChatFormat, names: Sequence[str], *, parallel: bool, answer: bool) -> CallFrame:
    """The frame of calls of any of the tools.

    parallel: several calls are allowed. answer: an answer without a call is allowed in place of the first.
    """
    holes = tuple(map(tool_hole, range(len(names))))
    named = dict.fromkeys((*holes, _ANSWER))
    terminals = not has_free_text(chat_format)
    whole, *triggered = (
        by_content(print_open(tree, terminals=terminals, holes={name: lark_hole(name) for name in named}))
        for tree in frame_trees(chat_format, names, parallel=parallel, answer=answer)
    )
    return CallFrame(
        whole,
        tuple(triggered),
        tuple(map(lark_hole, holes)),
        lark_hole(_ANSWER) if answer else None,
        None if terminals else call_marks(chat_format.calls),
        () if terminals else starts(chat_format.calls),
        call_locations(chat_format.calls) if isinstance(chat_format.calls.arguments, JsonArguments) else (),
    )


def frame_trees(
    chat_format: ChatFormat, names: Sequence[str], *, parallel: bool, answer: bool
) -> list[Grammar]:
    """The grammars of a frame, the whole first. They refer to `tool_hole(number)` and to `answer`."""
    writer = _CallWriter(chat_format, names, parallel)
    wholes = [writer.whole()]
    if answer:
        opening = spelled_texts(chat_format.text_opens, chat_format.special_tokens)
        wholes.append(sequence([*opening, RuleRef(_ANSWER)]))
    trees = [writer.rules.grammar(choice(wholes))]
    for trigger in chat_format.calls.triggers:
        part = _CallWriter(chat_format, names, parallel)
        trees.append(part.rules.grammar(part.after(trigger)))
    return trees


def tool_hole(number: int) -> str:
    """The rule of a tool's arguments, counted from 0."""
    return f"tool-{number}"


def lark_hole(name: str) -> str:
    """The name of a hole in the print."""
    return "hole_" + name.replace("-", "_")


class _CallWriter:
    """Writes the calls of one grammar."""

    def __init__(self, chat_format: ChatFormat, names: Sequence[str], parallel: bool) -> None:
        self._chat_format = chat_format
        self._layout = chat_format.calls
        self._parallel = parallel and chat_format.calls.parallel
        self.rules = RuleBuilder()
        self._names = names
        for rule in (*map(tool_hole, range(len(names))), _ANSWER):
            self.rules.reserve(rule)
        self._tools: dict[Parts, RuleRef] = {}

    def whole(self) -> Expr:
        """One call or more, with all that stands around them."""
        return sequence(
            [*self._text(self._layout.opening), self._call(), self._more(), *self._text(self._layout.closing)]
        )

    def after(self, trigger: str) -> Expr:
        """The rest of the calls after a trigger. Without a closing text, each call has its own trigger."""
        parts = self._layout.after(trigger)
        calls = self._any_tool(parts)
        if self._layout.closing:
            calls = sequence([calls, self._more(), *self._text(self._layout.closing)])
        return choice([calls, self._no_call(parts)]) if self._layout.no_call else calls

    def _no_call(self, parts: Parts) -> Expr:
        values = {Slot.NAME: self._layout.no_call, Slot.ARGUMENTS: "{}"}
        filled = tuple(part if isinstance(part, str) else values.get(part, part) for part in parts)
        return sequence([*self._filled(filled), *self._text(self._layout.closing)])

    def _more(self) -> Expr:
        if not self._parallel:
            return EMPTY
        return repeat(sequence([*self._text(self._layout.separator), self._call()]), 0, None)

    def _call(self) -> Expr:
        return self.rules.define("call", self._any_tool(self._layout.call))

    def _any_tool(self, parts: Parts) -> Expr:
        """The parts with the name and arguments of one tool. What no tool changes is written once."""
        own = [number for number, part in enumerate(parts) if part in _OF_A_TOOL]
        first, last = own[0], own[-1] + 1
        between = parts[first:last]
        tools = self._tools.get(between)
        if tools is None:
            tools = self._tools[between] = self.rules.define("tool", self._tool(between))
        return sequence([*self._filled(parts[:first]), tools, *self._filled(parts[last:])])

    def _tool(self, parts: Parts) -> Expr:
        texts = {part: sequence(self._filled((part,))) for part in parts if part not in _OF_A_TOOL}
        shared = {part: self.rules.define("between", text) for part, text in texts.items()}
        options: list[Expr] = []
        for number, name in enumerate(self._names):
            own = {Slot.NAME: Literal(name), Slot.ARGUMENTS: RuleRef(tool_hole(number)), **shared}
            options.append(sequence([own[part] for part in parts]))
        return choice(options)

    def _filled(self, parts: Parts) -> Iterable[Expr]:
        for part in parts:
            match part:
                case str():
                    yield from self._text(part)
                case Slot.INDEX:
                    yield self.rules.embed(translate(INDEX_PATTERN), "index")
                case Slot.CALL_ID:
                    yield self.rules.embed(translate(CALL_ID_PATTERN), "id")
                case _:
                    raise ValueError(f"{part} stands outside of arguments")

    def _text(self, text: str) -> list[Expr]:
        pieces = spelled_texts(text, self._chat_format.special_tokens)
        if not self._layout.optional_breaks:
            return pieces
        return [loose for piece in pieces for loose in _with_optional_breaks(piece)]


def _with_optional_breaks(piece: Expr) -> list[Expr]:
    if not isinstance(piece, Literal):
        return [piece]
    parts = re.split(r"(\n+)", piece.text)
    return [repeat(Literal(part), 0, 1) if part.startswith("\n") else Literal(part) for part in parts if part]
