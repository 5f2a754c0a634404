"""Small damage to valid inputs: of bytes, of texts made of tokens, and of JSON values."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any, Final, cast

_NUMBERS: Final = (
    0,
    1,
    2,
    127,
    128,
    255,
    256,
    65_535,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**63 - 1,
    2**63,
    2**64 - 1,
)
_TOKENS: Final = re.compile(r"\w+|\s+|[^\w\s]")
SCALARS: Final[tuple[Any, ...]] = (
    None, True, False, 0, -1, 1, 2, 0.5, -0.0, 1e308, 2**31, 2**53 + 1, 2**64, -(2**63), 10**400, "", "a", "\0", "é",
    "\ud7ff", "😀", "x" * 5_000, "data:image/png;base64,AAAA", "0", "null", [], {}, [[]], [None], {"": None},
)  # fmt: skip


def damaged(draw: random.Random, data: bytes, others: Sequence[bytes] = ()) -> bytes:
    """One to eight changes. others: inputs from which pieces are taken."""
    content = bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 2, 3, 8))):
        at = draw.randrange(len(content) + 1)
        match draw.randrange(8):
            case 0 if content:
                content[at % len(content)] ^= 1 << draw.randrange(8)
            case 1:
                content[at:at] = draw.randbytes(draw.choice((1, 2, 16, 300)))
            case 2:
                del content[at : at + draw.choice((1, 2, 4, 64, 5_000))]
            case 3:
                size = draw.choice((1, 2, 4, 8))
                number = draw.choice(_NUMBERS) % 256**size
                content[at : at + size] = number.to_bytes(size, draw.choice(("little", "big")))
            case 4:
                piece = content[at : at + draw.randrange(1, 200)]
                to = draw.randrange(len(content) + 1)
                content[to:to] = piece * draw.choice((1, 2, 50))
            case 5 if others:
                other = draw.choice(others)
                start = draw.randrange(len(other) + 1)
                content[at:at] = other[start : start + draw.randrange(1, 500)]
            case 6:
                del content[at:]
            case _:
                content[at : at + draw.randrange(1, 9)] = bytes(draw.randrange(1, 9))
    return bytes(content)


def rewritten(draw: random.Random, text: str, others: Sequence[str]) -> str:
    """Words and signs removed, repeated, swapped, and taken from the other texts."""
    tokens = _TOKENS.findall(text)
    words = [token for other in others for token in _TOKENS.findall(other)]
    for _ in range(draw.choice((1, 1, 2, 3, 6))):
        at = draw.randrange(len(tokens) + 1)
        match draw.randrange(6):
            case 0:
                tokens[at:at] = [draw.choice(words)]
            case 1:
                del tokens[at : at + draw.choice((1, 1, 3))]
            case 2:
                tokens[at : at + 1] = [draw.choice(words)]
            case 3:
                tokens[at:at] = tokens[at : at + draw.randrange(1, 8)] * draw.choice((1, 2, 30))
            case 4:
                tokens[at:at] = [draw.choice((*map(str, _NUMBERS), "é", "\0", "😀", "(" * 300, "{" * 300))]
            case _ if tokens:
                other = draw.randrange(len(tokens))
                tokens[at % len(tokens)], tokens[other] = tokens[other], tokens[at % len(tokens)]
            case _:
                pass
    return "".join(tokens)


def changed(draw: random.Random, value: Any, others: Sequence[Any] = (), *, rounds: int = 2) -> Any:
    """A JSON value with parts removed, doubled, renamed, nested, or replaced by scalars or by parts of the others."""
    for _ in range(draw.randint(1, rounds)):
        value = _changed(draw, value, [part for other in others for part in _parts(other)] or [None])
    return value


def _parts(value: Any) -> list[Any]:
    found = [value]
    for part in found:
        if isinstance(part, dict):
            found += cast(dict[str, Any], part).values()
        elif isinstance(part, list):
            found += cast(list[Any], part)
    return found


def _changed(draw: random.Random, value: Any, pool: Sequence[Any]) -> Any:
    if isinstance(value, dict) and value and draw.random() < 0.75:
        items = list(cast(dict[str, Any], value).items())
        at = draw.randrange(len(items))
        name, part = items[at]
        match draw.randrange(8):
            case 0:
                del items[at]
            case 1:
                items[at] = (draw.choice(("", "type", name + name, "\0", *(key for key, _ in items))), part)
            case 2:
                items.append((f"{name}{draw.randrange(3)}", part))
            case _:
                items[at] = (name, _changed(draw, part, pool))
        return dict(items)
    if isinstance(value, list) and value and draw.random() < 0.75:
        array = list(cast(list[Any], value))
        at = draw.randrange(len(array))
        match draw.randrange(5):
            case 0:
                del array[at]
            case 1:
                array[at:at] = array[at : at + 1] * draw.choice((1, 2, 40))
            case _:
                array[at] = _changed(draw, array[at], pool)
        return array
    whole = cast(Any, value)
    match draw.randrange(5):
        case 0:
            return [whole] * draw.choice((1, 2))
        case 1:
            return {draw.choice(("a", "type", "text", "properties", "$ref")): whole}
        case 2 | 3:
            return draw.choice(SCALARS)
        case _:
            return draw.choice(pool)
