"""The form in which a template writes calls, learned from a history that it renders.

A format's layout has the marks. White space between them and the words for true and none differ from model to model:
what a grammar allows, and what a history shows, must be what the model has learned.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

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
            form = CallForm(
                layout=number,
                texts=() if same else texts,
                python_words=python_words,
            )
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


def _read(
    layout: CallLayout, shown: str, calls: Sequence[ToolCall], names: Sequence[str]
) -> tuple[tuple[str, ...], bool] | None:
    """The texts of the layout as they are shown, and whether words are Python's; None if it is another layout."""
    gaps = _Gaps(layout)
    match = re.search(gaps.pattern(calls, names), shown, re.DOTALL)
    if match is None:
        return None
    found = match.groupdict()
    texts = gaps.texts(found)
    return None if texts is None else (texts, found.get("flag") == "True")


_Place = tuple[str, int, int]
"""Where white space stands: `in`, a text and the number of its word; `lead` or `trail`, a text; `between` two texts."""


class _Gaps:
    """The white space between the words of a layout's texts, as groups of a regular expression."""

    def __init__(self, layout: CallLayout) -> None:
        self._layout = layout
        self._own = texts_of(layout)
        self._groups: dict[_Place, str] = {}
        self._numbers = iter(range(len(self._own)))
        self._opening = next(self._numbers)
        self._call = self._numbered(layout.call)
        self._separator, self._closing = next(self._numbers), next(self._numbers)
        arguments = layout.arguments
        self._tagged = arguments if isinstance(arguments, TaggedArguments) else None
        self._argument = [] if self._tagged is None else self._numbered(self._tagged.argument)
        self._between = next(self._numbers, -1)

    def _numbered(self, parts: Parts) -> list[int | Slot]:
        return [next(self._numbers) if isinstance(part, str) else part for part in parts]

    def pattern(self, calls: Sequence[ToolCall], names: Sequence[str]) -> str:
        """What the calls look like. names: of the first call's arguments, in order."""
        self._groups = {}
        pieces: list[int | str] = [self._opening]
        for number, call in enumerate(calls):
            pieces += [self._separator] if number else []
            for part in self._call:
                if isinstance(part, int):
                    pieces.append(part)
                elif part is Slot.NAME:
                    pieces.append(re.escape(call.function.name))
                elif part is Slot.ARGUMENTS:
                    pieces += self._arguments(call, names if number == 0 else None)
                else:
                    pieces.append(r"[\w.:\-]+")
        return "".join(self._joined([*pieces, self._closing]))

    def _arguments(self, call: ToolCall, names: Sequence[str] | None) -> Iterator[int | str]:
        """names: of the first call; None for others."""
        if self._tagged is None:
            anything = (
                ".*?"
                if isinstance(self._layout.arguments, PythonArguments | NestedTagArguments)
                else r"\{.*?\}"
            )
            yield anything
            return
        values = json.loads(call.function.arguments)
        for number, name in enumerate(values if names is None else names):
            if number:
                yield self._between
            value = values[name]
            known = {
                Slot.KEY: name,
                Slot.VALUE: "(?P<flag>[Tt]rue)" if value is True else re.escape(str(value)),
            }
            for part in self._argument:
                yield part if isinstance(part, int) else known.get(part, r"\w+")

    def _joined(self, pieces: Sequence[int | str]) -> Iterator[str]:
        """The pieces as one expression. Texts of white space only are part of the gap around them."""
        last: int | str = ""
        blank: int | None = None
        for piece in pieces:
            words = self._own[piece].split() if isinstance(piece, int) else [piece]
            if not words:
                blank = piece if isinstance(piece, int) and isinstance(last, str) and last else blank
                continue
            place: _Place | None = None
            match last, piece:
                case int(), int():
                    place = ("between", last, piece)
                case int(), str():
                    place = ("trail", last, 0)
                case str(), int() if blank is not None:
                    place = ("between", blank, piece)
                case str(), int() if last:
                    place = ("lead", piece, 0)
                case str(), str() if blank is not None:
                    place = ("lead", blank, 0)
                case _:
                    pass
            yield self._gap(place) if place is not None else ""
            for number, word in enumerate(words):
                yield self._gap(("in", piece, number)) if isinstance(piece, int) and number else ""
                yield re.escape(word) if isinstance(piece, int) else word
            last, blank = piece, None

    def _gap(self, place: _Place) -> str:
        if place in self._groups:
            return f"(?P={self._groups[place]})"
        name = self._groups[place] = f"gap{len(self._groups)}"
        return rf"(?P<{name}>\s*)"

    def texts(self, found: Mapping[str, str | None]) -> tuple[str, ...] | None:
        """The texts with the white space that is found; None if that of two of them contradicts."""
        space = {place: found[name] or "" for place, name in self._groups.items()}
        ends = _Ends(self._own, space)
        tail, head = self._call[-1], self._call[0]
        place = self._call.index(Slot.ARGUMENTS)
        before, after = self._call[place - 1], self._call[place + 1] if self._call[place + 1 :] else None
        if self._tagged is not None and isinstance(before, int) and isinstance(after, int):
            first, last = self._argument[0], self._argument[-1]
            assert isinstance(first, int)
            assert isinstance(last, int)
            ends.split(before, first, keep=first)
            ends.split(before, after, keep=before)
            ends.split(last, after, keep=after)
            ends.around(last, self._between, first)
        if isinstance(head, int):
            ends.split(self._opening, head, keep=head)
        if isinstance(tail, int):
            ends.split(tail, self._closing, keep=tail)
            ends.around(tail, self._separator, head if isinstance(head, int) else None)
        return ends.texts() if ends.agree else None


class _Ends:
    """The texts, whose ends are settled one after another. agree: white space is as long as what is known of it."""

    def __init__(self, own: Sequence[str], space: Mapping[_Place, str]) -> None:
        self._own = own
        self._space = space
        self._lead = {number: text[: len(text) - len(text.lstrip())] for number, text in enumerate(own)}
        self._trail = {number: text[len(text.rstrip()) :] for number, text in enumerate(own) if text.strip()}
        self._lead |= {number: gap for (kind, number, _), gap in space.items() if kind == "lead"}
        self._trail |= {number: gap for (kind, number, _), gap in space.items() if kind == "trail"}
        self.agree = True

    def split(self, left: int, right: int, *, keep: int) -> None:
        """Divide the white space between two texts: `keep` has its own, the other one has the rest."""
        gap = self._space.get(("between", left, right))
        if gap is None:
            return
        if keep == left:
            self._lead[right] = self._without(gap, before=self._trail.get(left, self._lead[left]))
        else:
            self._trail[left] = self._without(gap, after=self._lead[right])

    def around(self, left: int, middle: int, right: int | None) -> None:
        """Give a separator what is between the texts beside it, whose ends are settled."""
        before, after = self._trail[left], "" if right is None else self._lead[right]
        if self._own[middle].strip():
            self.split(left, middle, keep=left)
            if right is not None:
                self.split(middle, right, keep=right)
            return
        gap = self._space.get(("between", left, right if right is not None else -1))
        if gap is None:
            gap = self._space.get(("trail", left, 0)) if right is None else None
        if gap is not None:
            self._lead[middle] = self._without(self._without(gap, before=before), after=after)

    def _without(self, gap: str, *, before: str = "", after: str = "") -> str:
        self.agree = self.agree and gap.startswith(before) and gap.endswith(after)
        return gap.removeprefix(before).removesuffix(after)

    def texts(self) -> tuple[str, ...]:
        return tuple(map(self._text, range(len(self._own))))

    def _text(self, number: int) -> str:
        words = self._own[number].split()
        if not words:
            return self._trail.get(number, self._lead[number])
        gaps = re.findall(r"(?<=\S)\s+(?=\S)", self._own[number])
        inner = (self._space.get(("in", number, at), gap) for at, gap in enumerate(gaps, 1))
        rest = "".join(gap + word for gap, word in zip(inner, words[1:], strict=True))
        return f"{self._lead[number]}{words[0]}{rest}{self._trail[number]}"
