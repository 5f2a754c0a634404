"""Remembers the names and items of a JSON text that is being written, and says what may not follow: one that is there
already, and a beginning that only such ones complete.

States are immutable: a token is tried by writing it to a copy.
"""

from __future__ import annotations

import json
from bisect import bisect_left, insort
from collections.abc import Iterator
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from enum import Enum
from typing import Final, NamedTuple

from jan_serve.core.text_memory import ELSEWHERE, NOWHERE, Automaton, ItemTexts, Place, TextMemory

_SPACE: Final = b" \t\n\r"
ENDS: Final = b",]} \t\n\r"
"""One of these follows each number, true, false and null in an array."""
_ESCAPED: Final = "".join(map(chr, range(0x20))) + '"\\'
_SPELLED: Final = {c: json.dumps(c)[1:-1] for c in _ESCAPED}
_ALL: Final = ((0, 0x10FFFF),)
_CONTAINER: Final = "~"
"""The keys of arrays and objects begin with it, so they follow those of all scalars."""
_EXACT: Final = Context(prec=MAX_PREC, Emin=MIN_EMIN, Emax=MAX_EMAX)


class Mode(Enum):
    VALUE = "value"
    """Before a value, or the end of an empty array."""
    STRING = "string"
    SCALAR = "scalar"
    AFTER = "after"
    """After a value."""
    KEY = "key"
    """Before a name, or the end of an empty object."""
    NAME = "name"


class _Parts(NamedTuple):
    """Keys of what an array or object holds so far, the last one first."""

    before: _Parts | None
    name: str
    key: str


class _Frame(NamedTuple):
    """An open bracket. place: of the array or object. used: sorted keys of items or names. lead: the white space before
    the first item. is_item: whether it is an item that may not repeat, or part of one; then parts are kept. name: of
    the next member."""

    parent: _Frame | None
    is_object: bool
    place: int
    used: tuple[str, ...] = ()
    lead: bytes = b""
    is_item: bool = False
    parts: _Parts | None = None
    name: str = ""

    def with_part(self, key: str) -> _Frame:
        return self._replace(parts=_Parts(self.parts, self.name, key)) if self.is_item else self


class State(NamedTuple):
    """text: of the string, name or scalar that is being written. place: of the next value."""

    frame: _Frame | None = None
    mode: Mode = Mode.VALUE
    text: bytes = b""
    place: int = 0


class JsonMemory:
    """The rules of one memory; all methods are functions of the states."""

    def __init__(self, memory: TextMemory) -> None:
        self._memory = memory
        self.has_items = bool(memory.unique)
        self.has_containers = any(items.containers for items in memory.unique)
        self.has_few_names = bool(memory.unlisted)

    def items(self, state: State) -> ItemTexts | None:
        """The texts of the items of the innermost array, if they may not repeat."""
        frame = state.frame
        if frame is None or frame.is_object:
            return None
        unique = self._place(frame.place).unique
        return None if unique == NOWHERE else self._memory.unique[unique]

    def may_repeat(self, state: State) -> bool:
        """Whether an item that is an array or object may repeat another one when it ends."""
        frame = state.frame
        while frame is not None:
            if frame.used and frame.used[-1] >= _CONTAINER:
                return True
            frame = frame.parent
        return False

    def written(self, state: State, data: bytes) -> State | None:
        """The state after more bytes, which the grammar allows; None if a name or item repeats or can only repeat."""
        position = 0
        while position < len(data):
            if state.mode is Mode.STRING or state.mode is Mode.NAME:
                end = _end_of_string(state.text, data, position)
                text = state.text + data[position:end]
                after = self._closed(state, text)
                position = end
            else:
                after = self._next(state, data[position : position + 1])
                position += 1
            if after is None:
                return None
            state = after
        return state if self._can_end(state) else None

    def _place(self, number: int) -> Place:
        return ELSEWHERE if number == NOWHERE else self._memory.places[number]

    def _closed(self, state: State, text: bytes) -> State | None:
        """After more of a string or name, which may be its end."""
        if not _is_closed(text):
            frame = state.frame
            is_kept = frame is not None and (frame.is_item or self.items(state) is not None)
            if state.mode is Mode.STRING and not is_kept:
                text = b'"\\' if _is_escaping(text) else b'"'  # a string may be long, and only its end counts
            return state._replace(text=text)
        if state.mode is Mode.STRING:
            return self._with_item(state._replace(text=text))
        frame = state.frame
        assert frame is not None
        place, name = self._place(frame.place), json.loads(text)
        key = '"' + name
        if _is_used(frame.used, key):
            return None
        frame = _with_used(frame, [key])
        if frame.is_item:
            frame = frame._replace(name=name)
        return State(frame, Mode.VALUE, b"", place.member(name))

    def _next(self, state: State, byte: bytes) -> State | None:
        """After one byte outside of strings."""
        frame, mode, text, place = state
        if mode is Mode.SCALAR:
            if byte not in ENDS:
                return state._replace(text=text + byte)
            after = self._with_item(state)
            return None if after is None else self._next(after, byte)
        if byte in _SPACE:
            if mode is Mode.VALUE and frame is not None and not frame.is_object and not frame.used:
                return state._replace(frame=frame._replace(lead=frame.lead + byte))
            # White space after a value: a bracket follows, and no comma.
            return None if mode is Mode.AFTER and frame is not None and self._repeats(frame) else state
        if byte in b"]}":
            assert frame is not None
            return self._after_container(frame)
        if byte in b",:":
            if frame is None or (byte == b":"):
                return state
            if frame.is_object:
                return State(frame, Mode.KEY)
            return State(frame, Mode.VALUE, b"", self._place(frame.place).items)
        if mode is Mode.KEY:
            return State(frame, Mode.NAME, byte)
        if byte in b"{[":
            items = self.items(state)
            is_item = frame is not None and (frame.is_item or (items is not None and items.containers))
            opened = _Frame(frame, byte == b"{", place, is_item=is_item)
            if opened.is_object:
                return State(opened, Mode.KEY)
            return State(opened, Mode.VALUE, b"", self._place(place).items)
        return State(frame, Mode.STRING if byte == b'"' else Mode.SCALAR, byte, place)

    def _with_item(self, state: State) -> State | None:
        """After the whole of a scalar."""
        frame = state.frame
        if frame is None:
            return State(None, Mode.AFTER)
        if self.items(state) is None:
            return State(frame.with_part(_part(state.text)) if frame.is_item else frame, Mode.AFTER)
        keys = _keys(state.text)
        if _is_used(frame.used, keys[0]):
            return None
        return State(_with_used(frame, keys).with_part(_part(state.text)), Mode.AFTER)

    def _after_container(self, frame: _Frame) -> State | None:
        """After the bracket that closes this one."""
        parent = frame.parent
        if parent is None or not frame.is_item:
            return State(parent, Mode.AFTER)
        if self._repeats(frame):
            return None
        key = _container_key(frame)
        if self._is_unique(parent):
            parent = _with_used(parent, [key])
        return State(parent.with_part(key), Mode.AFTER)

    def _is_unique(self, frame: _Frame) -> bool:
        """Whether the items of an array may not repeat."""
        return not frame.is_object and self._place(frame.place).unique != NOWHERE

    def _repeats(self, frame: _Frame) -> bool:
        """Whether an array or object is an item that is there already, if it ends here."""
        parent = frame.parent
        if not frame.is_item or parent is None or not self._is_unique(parent):
            return False
        return _is_used(parent.used, _container_key(frame))

    def _can_end(self, state: State) -> bool:
        """Whether the name or item that is being written may become one that is not there yet."""
        if state.mode is Mode.NAME:
            return self._can_end_name(state)
        items = self.items(state)
        if items is None or items.endless or state.mode not in (Mode.STRING, Mode.SCALAR):
            return True
        assert state.frame is not None
        used = state.frame.used
        if state.mode is Mode.SCALAR:
            text = state.text.decode("ascii")
            return _is_left(items.others, text, _ALL, text, used)
        text, chars = _partly_decoded(state.text[1:])
        return _is_left(items.strings, text, chars, '"' + text, used)

    def _can_end_name(self, state: State) -> bool:
        frame = state.frame
        assert frame is not None
        place = self._place(frame.place)
        if place.unlisted == NOWHERE:
            return True
        text, chars = _partly_decoded(state.text[1:])
        if chars is _ALL and not text:
            return True  # the grammar counts the members
        return _is_left(self._memory.unlisted[place.unlisted], text, chars, '"' + text, frame.used)

    def rests(self, state: State) -> Iterator[tuple[bytes, bool]]:
        """What would complete items that are there already, and whether that is a string. In an array of such items."""
        frame = state.frame
        if (
            frame is None
            or self.items(state) is None
            or state.mode not in (Mode.VALUE, Mode.STRING, Mode.SCALAR)
        ):
            return
        leads = [b""]
        if state.mode is Mode.VALUE:
            leads += {b" ", *(frame.lead[at:] for at in range(len(frame.lead)))}
            found = frame.used[: bisect_left(frame.used, _CONTAINER)]
        elif state.mode is Mode.SCALAR:
            found = _beginning_with(frame.used, state.text.decode("ascii"))
        else:
            found = _beginning_with(frame.used, '"' + _partly_decoded(state.text[1:])[0])
        for key in found:
            spelled = _spelled(key)
            if spelled.startswith(state.text):
                for lead in leads:
                    yield lead + spelled[len(state.text) :], key[0] == '"'

    def rests_of_name(self, state: State) -> Iterator[bytes]:
        """What would complete the name that is being written to one that is there already."""
        frame = state.frame
        if frame is None or state.mode is not Mode.NAME:
            return
        for key in _beginning_with(frame.used, '"' + _partly_decoded(state.text[1:])[0]):
            spelled = _spelled(key)
            if spelled.startswith(state.text):
                yield spelled[len(state.text) :]


def _end_of_string(text: bytes, data: bytes, position: int) -> int:
    """The position after the quote that closes the string, or the end of the data."""
    while True:
        end = data.find(b'"', position)
        if end < 0:
            return len(data)
        if not _is_escaping(text + data[:end]):
            return end + 1
        position = end + 1


def _is_closed(text: bytes) -> bool:
    """Whether a string that begins with a quote is whole. Only its last character may be the closing quote."""
    return len(text) > 1 and text[-1:] == b'"' and not _is_escaping(text[:-1])


def _is_escaping(text: bytes) -> bool:
    """Whether the next character of a string belongs to an escape that the last one begins."""
    return (len(text) - len(text.rstrip(b"\\"))) % 2 == 1


def _keys(text: bytes) -> list[str]:
    """What an item is known by: a quote and the decoded text of a string; every allowed spelling of a number."""
    if text[:1] == b'"':
        return ['"' + json.loads(text)]
    key = text.decode("ascii")
    if key[-1].isdigit():
        return [key, key[:-2]] if key.endswith(".0") else [key] if "." in key else [key, key + ".0"]
    return [key]


def _part(text: bytes) -> str:
    """What a scalar within an item is known by."""
    if text[:1] == b'"':
        return json.dumps(json.loads(text))
    if text[:1].isalpha():
        return text.decode("ascii")
    number = Decimal(text.decode("ascii"))
    return str(number.normalize(_EXACT)) if number else "0"


def _container_key(frame: _Frame) -> str:
    """What an array or object is known by: equal ones alike, in any order of names."""
    parts: list[tuple[str, str]] = []
    part = frame.parts
    while part is not None:
        parts.append((part.name, part.key))
        part = part.before
    if not frame.is_object:
        return f"{_CONTAINER}[{','.join([key for _, key in reversed(parts)])}]"
    members = dict(reversed(parts))
    texts = [f"{json.dumps(name)}:{members[name]}" for name in sorted(members)]
    return _CONTAINER + "{" + ",".join(texts) + "}"


def _with_used(frame: _Frame, keys: list[str]) -> _Frame:
    used = list(frame.used)
    for key in keys:
        insort(used, key)
    return frame._replace(used=tuple(used))


def _spelled(key: str) -> bytes:
    """The text of an item."""
    if key[0] != '"':
        return key.encode("ascii")
    text = "".join([_SPELLED.get(c, c) for c in key[1:]])
    return f'"{text}"'.encode("utf-8", "surrogatepass")


def _is_used(used: tuple[str, ...], key: str) -> bool:
    at = bisect_left(used, key)
    return at < len(used) and used[at] == key


def _beginning_with(used: tuple[str, ...], prefix: str) -> tuple[str, ...]:
    first = end = bisect_left(used, prefix)
    while end < len(used) and used[end].startswith(prefix):
        end += 1
    return used[first:end]


def _partly_decoded(text: bytes) -> tuple[str, tuple[tuple[int, int], ...]]:
    """The characters of an open string without its quote, and which ones may be next: all but in the middle of one."""
    at = text.rfind(b"\\")
    if at >= 0 and not _is_escaping(text[:at]):
        begun = text[at:].decode("utf-8", "replace")
        codes = [ord(c) for c, spelled in _SPELLED.items() if spelled != begun and spelled.startswith(begun)]
        if codes:
            return _decoded(text[:at]), tuple((code, code) for code in sorted(codes))
    whole = text
    for cut in range(1, min(4, len(text) + 1)):
        first = text[-cut]
        if first >= 0xC0:
            length = 2 if first < 0xE0 else 3 if first < 0xF0 else 4
            if cut < length:
                return _decoded(text[:-cut]), _completions(text[-cut:], length)
        if first < 0x80 or first >= 0xC0:
            break
    return _decoded(whole), _ALL


def _decoded(text: bytes) -> str:
    return json.loads(b'"' + text + b'"')


def _completions(begun: bytes, length: int) -> tuple[tuple[int, int], ...]:
    """The code points whose UTF-8 of this length begins like this."""
    value = begun[0] & (0x7F >> length)
    for byte in begun[1:]:
        value = value << 6 | byte & 0x3F
    shift = 6 * (length - len(begun))
    shortest = (0, 0, 0x80, 0x800, 0x10000)[length]
    return ((max(value << shift, shortest), min((value + 1 << shift) - 1, 0x10FFFF)),)


def _is_left(
    automaton: Automaton, text: str, chars: tuple[tuple[int, int], ...], prefix: str, used: tuple[str, ...]
) -> bool:
    """Whether some word that begins with `text`, and goes on with one of `chars`, is not used; or none is a word."""
    at: int | None = 0
    for character in text:
        at = automaton.step(at, character)
        if at is None:
            return True  # the grammar's fault, which is not allowed here either
    if chars is not _ALL and not any(
        low <= last and first <= high for first, last, _ in automaton.edges[at] for low, high in chars
    ):
        return True
    return _is_alive(automaton, at, chars, prefix, _beginning_with(used, prefix))


def _is_alive(
    automaton: Automaton,
    at: int,
    chars: tuple[tuple[int, int], ...],
    prefix: str,
    used: tuple[str, ...],
) -> bool:
    """Whether some word from state `at` on, that goes on with one of `chars`, is not used.

    prefix: the key so far. used: the keys that begin with it.
    """
    todo = [(at, chars, prefix, used)]
    while todo:
        at, chars, prefix, used = todo.pop()
        if not used or (chars is _ALL and at in automaton.accepting and used[0] != prefix):
            return True
        follow: dict[str, int] = {}
        for key in used:
            if len(key) > len(prefix):
                follow[key[len(prefix)]] = 0
        for first, last, target in automaton.edges[at]:
            inside = [c for c in follow if first <= ord(c) <= last]
            for low, high in chars:
                low, high = max(low, first), min(high, last)
                here = [c for c in inside if low <= ord(c) <= high]
                if high - low + 1 > len(here):
                    return True
                todo += [(target, _ALL, prefix + c, _beginning_with(used, prefix + c)) for c in here]
    return False
