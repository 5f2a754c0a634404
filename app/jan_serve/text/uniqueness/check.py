"""This module compares the names and items of a JSON text that is being written, and says what may not follow: one
that is there already, and a beginning that only such ones complete. States are immutable: a token is tried by writing
it to a copy. CallSearch finds where the arguments of a call begin in a text of calls."""

from __future__ import annotations

import json
import re
from bisect import bisect_left, insort
from collections.abc import Iterator
from enum import Enum
from typing import Final, NamedTuple

from jan_serve.core.uniqueness import ELSEWHERE, NOWHERE, CallLocations, ItemTexts, Location, Uniqueness
from jan_serve.text.uniqueness import words

_LONGEST_MARK: Final = 256
"""Most bytes of the marks around a name."""


class CallSearch:
    """begun: text before the answer. longest: bytes before a brace that matter."""

    def __init__(self, calls: CallLocations) -> None:
        self._roots = calls.roots
        names = "|".join(map(re.escape, calls.roots))
        self._call = re.compile(f"{calls.before}({names}){calls.between}\\Z".encode(), re.DOTALL)
        self.begun = calls.begun.encode()
        self.longest = _LONGEST_MARK + max((len(name.encode()) for name in calls.roots), default=0)

    def location(self, text: bytes) -> int | None:
        """The location of the arguments that a brace after `text` begins; None if it begins none."""
        found = self._call.search(text)
        return None if found is None else self._roots[found[1].decode()]


_SPACE: Final = b" \t\n\r"
ENDS: Final = b",]} \t\n\r"
"""One of these follows each number, true, false and null in an array."""
_CONTAINER: Final = "~"
"""The keys of arrays and objects begin with it, so they follow those of all scalars."""


class Mode(Enum):
    VALUE = "value"
    """Before a value, or the end of an empty array."""
    STRING = "string"
    SCALAR = "scalar"
    AFTER = "after"
    KEY = "key"
    """Before a name, or the end of an empty object."""
    NAME = "name"
    OUTSIDE = "outside"
    """Before the arguments of a call, in a text of calls."""


class _Parts(NamedTuple):
    """Keys of what an array or object holds so far, the last one first."""

    before: _Parts | None
    name: str
    key: str


class _Frame(NamedTuple):
    """An open bracket. location: of the array or object. used: sorted keys of items or names. lead: the white space
    before the first item. is_item: whether it is an item that may not repeat, or part of one; then parts are kept.
    name: of the next member. last: keys of the value that an item ends with."""

    parent: _Frame | None
    is_object: bool
    location: int
    used: tuple[str, ...] = ()
    lead: bytes = b""
    is_item: bool = False
    parts: _Parts | None = None
    name: str = ""
    last: tuple[str, ...] = ()

    def written(self) -> int:
        """How many parts there are."""
        count, part = 0, self.parts
        while part is not None:
            count, part = count + 1, part.before
        return count

    def with_part(self, key: str) -> _Frame:
        return self._replace(parts=_Parts(self.parts, self.name, key)) if self.is_item else self


class State(NamedTuple):
    """text: of the string, name or scalar that is written. location: of the next value. run: in a string or name."""

    frame: _Frame | None = None
    mode: Mode = Mode.VALUE
    text: bytes = b""
    location: int = 0
    run: words.EscapeRun = words.NO_RUN


class Compared(NamedTuple):
    """The texts of scalars, and the sorted keys of those that are there already."""

    texts: ItemTexts
    used: tuple[str, ...]


_IN_VALUE: Final = (Mode.VALUE, Mode.STRING, Mode.SCALAR)


class UniquenessCheck:
    """What one Uniqueness forbids; all methods are functions of the states."""

    def __init__(self, uniqueness: Uniqueness) -> None:
        self._uniqueness = uniqueness
        self.has_items = bool(uniqueness.unique)
        self.has_containers = any(items.containers for items in uniqueness.unique)
        self.has_last = any(items.last for items in uniqueness.unique)
        self.has_few_names = bool(uniqueness.unlisted)
        self.names_repeat = uniqueness.names_repeat
        self._calls = None if uniqueness.calls is None else CallSearch(uniqueness.calls)
        self.start = State() if self._calls is None else State(None, Mode.OUTSIDE, self._calls.begun)

    def compared(self, state: State) -> Compared | None:
        """What the scalar that is written, or the next one, may not repeat."""
        frame = state.frame
        if frame is None or (state.mode not in _IN_VALUE and self._items(frame) is None):
            return None
        return self._compared(frame)

    def _compared(self, frame: _Frame) -> Compared | None:
        """What the next item or value may not repeat."""
        items = self._items(frame)
        return self._last(frame) if items is None else Compared(items, frame.used)

    def _items(self, frame: _Frame) -> ItemTexts | None:
        """The texts of the items of an array, if they may not repeat."""
        unique = NOWHERE if frame.is_object else self._location(frame.location).unique
        return None if unique == NOWHERE else self._uniqueness.unique[unique]

    def _last(self, frame: _Frame) -> Compared | None:
        """What the next value may not repeat: the last one of an array or object that may not be repeated itself."""
        above = self._compared(frame.parent) if frame.is_item and frame.parent is not None else None
        if above is None or not above.texts.last:
            return None
        place = frame.name if frame.is_object else frame.written()
        texts = next((last.values for last in above.texts.last if last.place == place), None)
        if texts is None:
            return None
        head = _head(frame)
        equal = words.beginning_with(above.used, head)
        return Compared(texts, tuple([key[len(head) :] for key in equal if len(key) > len(head)]))

    def may_repeat(self, state: State) -> bool:
        """Whether an item that is an array or object may repeat another one when it ends."""
        frame = state.frame
        while frame is not None and not (frame.used and frame.used[-1] >= _CONTAINER):
            frame = frame.parent
        return frame is not None

    def written(self, state: State, data: bytes) -> State | None:
        """The state after more bytes, which the grammar allows; None if a name or item repeats or can only repeat."""
        position = 0
        while position < len(data):
            if state.mode is Mode.OUTSIDE:
                after, position = self._begun(state.text, data, position)
            elif state.mode is Mode.STRING or state.mode is Mode.NAME:
                end = words.end_of_string(state.text, data, position)
                part = data[position:end]
                run = state.run.written(part)
                after = self._closed(state._replace(run=run), state.text + part)
                position = end
            else:
                after = self._next(state, data[position : position + 1])
                position += 1
            if after is None:
                return None
            state = after
        return state if self._can_end(state) else None

    def _begun(self, text: bytes, data: bytes, position: int) -> tuple[State, int]:
        """The state at the next brace between calls; `text` is before it."""
        assert self._calls is not None
        at = data.find(b"{", position)
        if at < 0:
            return State(None, Mode.OUTSIDE, (text + data[position:])[-self._calls.longest :]), len(data)
        text += data[position:at]
        location = self._calls.location(text)
        if location is None:
            return State(None, Mode.OUTSIDE, (text + b"{")[-self._calls.longest :]), at + 1
        return State(location=location), at

    def _location(self, number: int) -> Location:
        return ELSEWHERE if number == NOWHERE else self._uniqueness.locations[number]

    def _closed(self, state: State, text: bytes) -> State | None:
        """The state after more of a string or name, which may be its end."""
        if not words.is_closed(text):
            frame = state.frame
            is_kept = frame is not None and (frame.is_item or self._items(frame) is not None)
            if state.mode is Mode.STRING and not is_kept:
                # A string may be long, and only its end counts.
                text = b'"\\' if words.is_escaping(text) else b'"'
            return state._replace(text=text)
        if state.mode is Mode.STRING:
            return self._with_item(state._replace(text=text))
        frame = state.frame
        assert frame is not None
        location, name = self._location(frame.location), json.loads(text)
        key = '"' + name
        if words.is_used(frame.used, key):
            return None
        frame = _with_used(frame, [key])
        if frame.is_item:
            frame = frame._replace(name=name)
        return State(frame, Mode.VALUE, b"", location.member(name))

    def _next(self, state: State, byte: bytes) -> State | None:
        """The state after one byte outside of strings."""
        frame, mode, text, location, _ = state
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
            return self._after_comma(frame)
        if mode is Mode.KEY:
            return State(frame, Mode.NAME, byte)
        if byte in b"{[":
            items = None if frame is None else self._items(frame)
            is_item = frame is not None and (frame.is_item or (items is not None and items.containers))
            return self._after_comma(_Frame(frame, byte == b"{", location, is_item=is_item))
        return State(frame, Mode.STRING if byte == b'"' else Mode.SCALAR, byte, location)

    def _after_comma(self, frame: _Frame) -> State:
        """The state before a member or an item."""
        if frame.is_object:
            return State(frame, Mode.KEY)
        return State(frame, Mode.VALUE, b"", self._location(frame.location).items)

    def _with_item(self, state: State) -> State | None:
        """The state after the whole of a scalar; None if it may not repeat here."""
        frame = state.frame
        if frame is None:
            return State(None, Mode.AFTER)
        compared = self.compared(state)
        if compared is None:
            return State(frame.with_part(words.part_key(state.text)) if frame.is_item else frame, Mode.AFTER)
        if not compared.texts.compares(state.text):
            return State(frame._replace(lead=b"").with_part(words.part_key(state.text)), Mode.AFTER)
        keys = words.keys_of(state.text)
        if words.is_used(compared.used, keys[0]):
            return None
        if self._items(frame) is None:
            return State(frame._replace(last=tuple(keys)), Mode.AFTER)
        return State(_with_used(frame, keys).with_part(words.part_key(state.text)), Mode.AFTER)

    def _after_container(self, frame: _Frame) -> State | None:
        """The state after the bracket that closes this one."""
        parent = frame.parent
        if parent is None and self._calls is not None:
            return State(None, Mode.OUTSIDE)
        if parent is None or not frame.is_item:
            return State(parent, Mode.AFTER)
        if self._repeats(frame):
            return None
        keys = _container_keys(frame)
        if self._items(parent) is not None:
            parent = _with_used(parent, keys)
        elif self._last(parent) is not None:
            return State(parent._replace(last=tuple(keys)), Mode.AFTER)
        return State(parent.with_part(min(keys)), Mode.AFTER)

    def _repeats(self, frame: _Frame) -> bool:
        """Whether an array or object is an item that is there already, if it ends here."""
        compared = self._compared(frame.parent) if frame.is_item and frame.parent is not None else None
        return compared is not None and words.is_used(compared.used, _container_keys(frame)[0])

    def _can_end(self, state: State) -> bool:
        """Whether the name or item that is being written may become one that is not there yet."""
        if state.mode is Mode.NAME:
            return self._can_end_name(state)
        compared = self.compared(state)
        if compared is None or compared.texts.endless or state.mode not in (Mode.STRING, Mode.SCALAR):
            return True
        items, used = compared
        if state.mode is Mode.SCALAR:
            text = state.text.decode("ascii")
            return words.is_left(items.others, text, words.ALL, text, used)
        text, chars = words.partly_decoded(state.text[1:])
        return words.is_left(items.strings, text, chars, '"' + text, used)

    def _can_end_name(self, state: State) -> bool:
        frame = state.frame
        assert frame is not None
        location = self._location(frame.location)
        if location.unlisted == NOWHERE:
            return True
        text, chars = words.partly_decoded(state.text[1:])
        if chars is words.ALL and not text:
            return True  # the grammar counts the members
        return words.is_left(
            self._uniqueness.unlisted[location.unlisted], text, chars, '"' + text, frame.used
        )

    def rests(self, state: State) -> Iterator[tuple[bytes, bool]]:
        """What would complete scalars that are there already, and whether that is a string."""
        frame, compared = state.frame, self.compared(state)
        if frame is None or compared is None or state.mode not in _IN_VALUE:
            return
        used, leads = compared.used, [b""]
        if state.mode is Mode.VALUE:
            leads += {b" ", *(frame.lead[at:] for at in range(len(frame.lead)))}
            found = used[: bisect_left(used, _CONTAINER)]
        elif state.mode is Mode.SCALAR:
            found = words.beginning_with(used, state.text.decode("ascii"))
        else:
            found = words.beginning_with(used, '"' + words.partly_decoded(state.text[1:])[0])
        for key in found:
            text = words.spelled(key)
            if text.startswith(state.text):
                for lead in leads:
                    yield lead + text[len(state.text) :], key[0] == '"'

    def rests_of_name(self, state: State) -> Iterator[bytes]:
        """What would complete the name that is being written to one that is there already."""
        frame = state.frame
        if frame is None or state.mode is not Mode.NAME:
            return
        for key in words.beginning_with(frame.used, '"' + words.partly_decoded(state.text[1:])[0]):
            text = words.spelled(key)
            if text.startswith(state.text):
                yield text[len(state.text) :]


def _container_keys(frame: _Frame) -> list[str]:
    """What an array or object is known by: equal ones alike, in any order of names."""
    head = _head(frame)
    return [head + key for key in frame.last] or [head]


def _head(frame: _Frame) -> str:
    """The key of an array or object, or its beginning where it has a last value: that one is left out."""
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
