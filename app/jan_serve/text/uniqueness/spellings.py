"""Strings and numbers of a JSON text as they are compared: what they decode to, and the spelling a grammar allows."""

from __future__ import annotations

import json
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from typing import Final

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
    whole = text
    for cut in range(1, min(4, len(text) + 1)):
        first = text[-cut]
        if first >= 0xC0:
            length = 2 if first < 0xE0 else 3 if first < 0xF0 else 4
            if cut < length:
                return _decoded(text[:-cut]), _completions(text[-cut:], length)
        if first < 0x80 or first >= 0xC0:
            break
    return _decoded(whole), ALL


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
    if key[-1].isdigit():
        return [key, key[:-2]] if key.endswith(".0") else [key] if "." in key else [key, key + ".0"]
    return [key]


def part_key(text: bytes) -> str:
    """What a scalar within an item is known by."""
    if text[:1] == b'"':
        return json.dumps(json.loads(text))
    if text[:1].isalpha():
        return text.decode("ascii")
    number = Decimal(text.decode("ascii"))
    return str(number.normalize(_EXACT)) if number else "0"
