"""The form in which a template writes calls, learned from a history that it renders.

A format's layout has the marks. White space between them and the words for true and none differ from model to model:
what a grammar allows, and what a history shows, must be what the model has learned.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from jan_serve.chat.call_layout import (
    CallLayout,
    NestedTagArguments,
    Parts,
    PythonArguments,
    Slot,
    TaggedArguments,
)
from jan_serve.chat.chat_format import ChatFormat
from jan_serve.chat.tools_as_text import write_calls
from jan_serve.core.messages import CallForm, FunctionCall, Message, Tool, ToolCall

_FIRST: Final[dict[str, Any]] = {"zeta": "value-1", "alpha": "value-2"}
_ARGUMENTS: Final[tuple[dict[str, Any], ...]] = (_FIRST, {"flag": True}, {})
_CALLS: Final = tuple(
    ToolCall(f"probe000{number}", FunctionCall(f"probe_{number}", json.dumps(arguments)))
    for number, arguments in enumerate(_ARGUMENTS)
)
PROBE_TOOLS: Final = tuple(
    Tool(
        name=call.function.name,
        description="Probes.",
        parameters={
            "type": "object",
            "properties": {
                name: {"type": "boolean" if value is True else "string", "description": "A value."}
                for name, value in arguments.items()
            },
        },
    )
    for call, arguments in zip(_CALLS, _ARGUMENTS, strict=True)
)


def probe_history(*, parallel: bool) -> tuple[Message, ...]:
    """A turn with calls and their results; with one call only, unless `parallel`."""
    calls = _CALLS if parallel else _CALLS[:1]
    return (
        Message(role="user", content="Hi."),
        Message(role="assistant", tool_calls=calls),
        *(Message(role="tool", content="done", tool_call_id=call.id) for call in calls),
    )


def learned_form(chat_format: ChatFormat, shown: str, *, parallel: bool) -> CallForm | None:
    """The form of the calls in a rendered `probe_history`; None where it is that of the format, or unknown."""
    calls = _CALLS if parallel else _CALLS[:1]
    for number, layout in enumerate((chat_format.calls, *chat_format.other_calls)):
        for names in (tuple(_FIRST), tuple(sorted(_FIRST))):
            found = _read(layout, shown, calls, names)
            if found is None:
                continue
            texts, python_words = found
            same = write_calls(layout, calls) == write_calls(with_texts(layout, texts), calls)
            form = CallForm(layout=number, texts=() if same else texts, python_words=python_words)
            return None if form == CallForm() else form
    return None


def in_form(chat_format: ChatFormat, form: CallForm | None) -> ChatFormat:
    """The format with calls in this form. Raises ValueError for one that `learned_form` does not make."""
    if form is None:
        return chat_format
    layouts = (chat_format.calls, *chat_format.other_calls)
    if not 0 <= form.layout < len(layouts):
        raise ValueError(f"the format has no layout {form.layout}")
    layout = layouts[form.layout]
    if form.texts:
        layout = with_texts(layout, form.texts)
    arguments = layout.arguments
    if isinstance(arguments, TaggedArguments):
        arguments = msgspec.structs.replace(arguments, python_words=form.python_words)
    layout = msgspec.structs.replace(layout, arguments=arguments)
    return msgspec.structs.replace(chat_format, calls=layout, form=form)


def texts_of(layout: CallLayout) -> tuple[str, ...]:
    """All texts of a layout: `opening`, those of `call`, `separator`, `closing`, those of an argument."""
    parts: list[str | Slot] = [layout.opening, *layout.call, layout.separator, layout.closing]
    if isinstance(layout.arguments, TaggedArguments):
        parts += [*layout.arguments.argument, layout.arguments.separator]
    return tuple(part for part in parts if isinstance(part, str))


def with_texts(layout: CallLayout, texts: Sequence[str]) -> CallLayout:
    """The layout with other white space in its texts. Raises ValueError where anything else differs."""
    own = texts_of(layout)
    if len(own) != len(texts) or any(
        "".join(one.split()) != "".join(other.split()) for one, other in zip(own, texts, strict=True)
    ):
        raise ValueError("the texts are not those of the layout")
    left = iter(texts)
    opening = next(left)
    call = _filled(layout.call, left)
    changed = msgspec.structs.replace(
        layout, opening=opening, call=call, separator=next(left), closing=next(left)
    )
    if not isinstance(layout.arguments, TaggedArguments):
        return changed
    argument = _filled(layout.arguments.argument, left)
    arguments = msgspec.structs.replace(layout.arguments, argument=argument, separator=next(left))
    return msgspec.structs.replace(changed, arguments=arguments)


def _filled(parts: Parts, texts: Iterator[str]) -> Parts:
    return tuple(next(texts) if isinstance(part, str) else part for part in parts)


_RUNS: Final = re.compile(r"(\S+)")
"""Splits a text into white space and words by turns, with white space, or none, at both ends."""


def _read(
    layout: CallLayout, shown: str, calls: Sequence[ToolCall], names: Sequence[str]
) -> tuple[tuple[str, ...], bool] | None:
    """The texts of the layout as they are shown, and whether words are Python's; None if it is another layout.

    names: of the first call's arguments, in order.
    """
    texts = [_RUNS.split(text) for text in texts_of(layout)]
    numbered = _Numbered(layout, iter(range(len(texts))))
    match = re.search(numbered.pattern(texts, calls, names), shown, re.DOTALL)
    if match is None:
        return None
    found = match.groupdict()
    spaced = (
        "".join(found.get(f"text{number}_{index}", run) for index, run in enumerate(runs))
        for number, runs in enumerate(texts)
    )
    return tuple(spaced), found.get("flag") == "True"


_ANYTHING: Final = ".*?"


class _Token(NamedTuple):
    """A part of a regular expression: a word, or white space. name: of the group of white space that may differ."""

    text: str
    name: str = ""
    is_word: bool = False


class _Numbered:
    """A layout with the numbers of its texts in their place, in the order of `texts_of`."""

    def __init__(self, layout: CallLayout, numbers: Iterator[int]) -> None:
        def of(parts: Parts) -> list[int | Slot]:
            return [next(numbers) if isinstance(part, str) else part for part in parts]

        syntax = layout.arguments
        self._opening, self._call = next(numbers), of(layout.call)
        self._separator, self._closing = next(numbers), next(numbers)
        self._argument = of(syntax.argument) if isinstance(syntax, TaggedArguments) else []
        self._between = next(numbers, -1)
        self._is_json = not isinstance(syntax, PythonArguments | NestedTagArguments)

    def pattern(self, texts: Sequence[Sequence[str]], calls: Sequence[ToolCall], names: Sequence[str]) -> str:
        """A regular expression of the calls, with a group for the white space at each place of a text.

        A place has the same white space wherever the text is, that of the layout if it can. Where two texts touch, one
        keeps that of the layout, and the other one has the rest: so the white space between them has one reading.
        Before a word there is one reading in any case, and the group takes it without a second try: each place with two
        would double the time that a text takes which has no such calls.
        """
        tokens = list(self._tokens(texts, calls, names))
        words = [number for number, token in enumerate(tokens) if token.is_word]
        tokens = tokens[words[0] : words[-1] + 1]  # white space before the calls belongs to nothing
        written: list[str] = []
        spaces: set[str] = set()
        for number, (text, name, _) in enumerate(tokens):
            if not name:
                written.append(text)
            elif name in spaces:
                written.append(f"(?P={name})")
            else:
                spaces.add(name)
                after = tokens[number + 1]
                before_word = after.is_word and after.text != _ANYTHING
                written.append(rf"(?P<{name}>\s*+)" if before_word else rf"(?P<{name}>{text}|\s*?)")
        return "".join(written)

    def _tokens(
        self, texts: Sequence[Sequence[str]], calls: Sequence[ToolCall], names: Sequence[str]
    ) -> Iterator[_Token]:
        """The calls in words and white space."""
        heads, tail = {self._call[0], *self._argument[:1]}, self._call[-1]
        for piece in self._pieces(calls, names):
            if isinstance(piece, str):
                yield _Token(piece, is_word=True)
                continue
            runs = texts[piece]
            for index, run in enumerate(runs):
                is_own = (index == 0 and piece in heads) or (index == len(runs) - 1 and piece == tail)
                if index % 2:
                    yield _Token(re.escape(run), is_word=True)
                elif not is_own:
                    yield _Token(re.escape(run), name=f"text{piece}_{index}")
                elif run:
                    yield _Token(re.escape(run))

    def _pieces(self, calls: Sequence[ToolCall], names: Sequence[str]) -> Iterator[int | str]:
        """Numbers of texts, and what stands in the place of slots."""
        yield self._opening
        for position, call in enumerate(calls):
            if position:
                yield self._separator
            for part in self._call:
                if part is Slot.ARGUMENTS:
                    yield from self._arguments(
                        json.loads(call.function.arguments), names if position == 0 else ()
                    )
                elif isinstance(part, int):
                    yield part
                else:
                    yield re.escape(call.function.name) if part is Slot.NAME else r"[\w.:\-]+"
        yield self._closing

    def _arguments(self, values: dict[str, Any], names: Sequence[str]) -> Iterator[int | str]:
        if not self._argument:
            yield r"\{.*?\}" if self._is_json else _ANYTHING
            return
        for position, name in enumerate(names or values):
            if position:
                yield self._between
            shown = "(?P<flag>[Tt]rue)" if values[name] is True else re.escape(str(values[name]))
            for part in self._argument:
                yield part if isinstance(part, int) else {Slot.KEY: name, Slot.VALUE: shown}.get(part, r"\w+")
