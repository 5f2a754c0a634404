"""Words are strings and numbers of a JSON text as they are compared: decoded, or in the spelling a grammar allows.
`is_left` says whether an automaton has a word that is not used up. EscapeRun counts runs of one escape in a string
(`\n\n\n…`), which a weak model would continue for ever."""

from __future__ import annotations

import json
from bisect import bisect_left
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from typing import Final, NamedTuple

from jan_serve.core.uniqueness import Automaton

ALL: Final = ((0, 0x10FFFF),)
_ESCAPED: Final = "".join(map(chr, range(0x20))) + '"\\'
_SPELLED: Final = {c: json.dumps(c)[1:-1] for c in _ESCAPED}
_EXACT: Final = Context(prec=MAX_PREC, Emin=MIN_EMIN, Emax=MAX_EMAX)


def end_of_string(text: bytes, data: bytes, position: int) -> int:
    """The position after the quote that closes the string, or the end of the data."""
    while True:
        end = data.find(b'"', position)
        if end < 0:
            return len(data)
        if not is_escaping(text + data[:end]):
            return end + 1
        position = end + 1


def is_closed(text: bytes) -> bool:
    """Whether a string that begins with a quote is whole. Only its last character may be the closing quote."""
    return len(text) > 1 and text[-1:] == b'"' and not is_escaping(text[:-1])


def is_escaping(text: bytes) -> bool:
    """Whether the next character of a string belongs to an escape that the last one begins."""
    return (len(text) - len(text.rstrip(b"\\"))) % 2 == 1


def spelled(key: str) -> bytes:
    """The text of an item."""
    if key[0] != '"':
        return key.encode("ascii")
    text = "".join([_SPELLED.get(c, c) for c in key[1:]])
    return f'"{text}"'.encode("utf-8", "surrogatepass")


def partly_decoded(text: bytes) -> tuple[str, tuple[tuple[int, int], ...]]:
    """The characters of an open string without its quote, and which ones may be next: all but in the middle of one."""
    at = text.rfind(b"\\")
    if at >= 0 and not is_escaping(text[:at]):
        begun = text[at:].decode("utf-8", "replace")
        codes = [ord(c) for c, spelled in _SPELLED.items() if spelled != begun and spelled.startswith(begun)]
        if codes:
            return _decoded(text[:at]), tuple((code, code) for code in sorted(codes))
    for cut in range(1, min(4, len(text) + 1)):
        first = text[-cut]
        if first >= 0xC0:
            length = 2 if first < 0xE0 else 3 if first < 0xF0 else 4
            if cut < length:
                return _decoded(text[:-cut]), _completions(text[-cut:], length)
        if first < 0x80 or first >= 0xC0:
            break
    return _decoded(text), ALL


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


def keys_of(text: bytes) -> list[str]:
    """What an item is known by: a quote and the decoded text of a string; every allowed spelling of a number."""
    if text[:1] == b'"':
        return ['"' + json.loads(text)]
    key = text.decode("ascii")
    if key.endswith(".0"):
        return [key, key[:-2]]
    return [key, key + ".0"] if key[-1].isdigit() and "." not in key else [key]


def part_key(text: bytes) -> str:
    """What a scalar within an item is known by."""
    if text[:1] == b'"':
        return json.dumps(json.loads(text))
    if text[:1].isalpha():
        return text.decode("ascii")
    number = Decimal(text.decode("ascii"))
    return str(number.normalize(_EXACT)) if number else "0"


def is_used(used: tuple[str, ...], key: str) -> bool:
    at = bisect_left(used, key)
    return at < len(used) and used[at] == key


def beginning_with(used: tuple[str, ...], prefix: str) -> tuple[str, ...]:
    first = end = bisect_left(used, prefix)
    while end < len(used) and used[end].startswith(prefix):
        end += 1
    return used[first:end]


def is_left(
    automaton: Automaton, text: str, chars: tuple[tuple[int, int], ...], prefix: str, used: tuple[str, ...]
) -> bool:
    """Whether some word that begins with `text`, and goes on with one of `chars`, is not used; or none is a word."""
    at: int | None = 0
    for character in text:
        at = automaton.step(at, character)
        if at is None:
            return True  # the grammar's fault, which is not allowed here either
    if chars is not ALL and not any(
        low <= last and first <= high for first, last, _ in automaton.edges[at] for low, high in chars
    ):
        return True
    return _is_alive(automaton, at, chars, prefix, beginning_with(used, prefix))


def _is_alive(
    automaton: Automaton, at: int, chars: tuple[tuple[int, int], ...], prefix: str, used: tuple[str, ...]
) -> bool:
    """Whether some word from state `at` on, that goes on with one of `chars`, is not used. prefix: the key so far.
    used: the keys that begin with it."""
    todo = [(at, chars, prefix, used)]
    while todo:
        at, chars, prefix, used = todo.pop()
        if not used or (chars is ALL and at in automaton.accepting and used[0] != prefix):
            return True
        follow = dict.fromkeys(key[len(prefix)] for key in used if len(key) > len(prefix))
        for first, last, target in automaton.edges[at]:
            inside = [c for c in follow if first <= ord(c) <= last]
            for low, high in chars:
                low, high = max(low, first), min(high, last)
                here = [c for c in inside if low <= ord(c) <= high]
                if high - low + 1 > len(here):
                    return True
                todo += [(target, ALL, prefix + c, beginning_with(used, prefix + c)) for c in here]
    return False


MOST: Final = 32
"""Escapes of one kind in a row, where anything else may follow. No valid instance of MaskBench has four."""


class EscapeRun(NamedTuple):
    """The end of an open string. escape: the one it ends with, `length` times. begun: of the next one."""

    escape: bytes = b""
    length: int = 0
    begun: bytes = b""

    def written(self, data: bytes) -> EscapeRun:
        """The run after more bytes of the string."""
        if not self.begun and b"\\" not in data:
            return NO_RUN if data else self
        text = self.begun + data
        escape, length, at = self.escape, self.length, 0
        while at < len(text):
            if text[at] != _BACKSLASH:
                at = text.find(b"\\", at)
                if at < 0:
                    return NO_RUN
                escape, length = b"", 0
            end = at + (6 if text[at + 1 : at + 2] == b"u" else 2)
            if end > len(text):
                return EscapeRun(escape, length, text[at:])
            found = text[at:end]
            escape, length, at = found, length + 1 if found == escape else 1, end
        return EscapeRun(escape, length)

    def rest(self) -> bytes | None:
        """What would continue a run that is as long as it may be."""
        if self.length < MOST or not self.escape.startswith(self.begun):
            return None
        return self.escape[len(self.begun) :]


NO_RUN: Final = EscapeRun()
_BACKSLASH: Final = ord("\\")
