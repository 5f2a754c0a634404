"""Texts that repeat much and are no loops: tables, code, logs and the like, drawn at random."""

from __future__ import annotations

import functools
import json
import random
import re
from collections.abc import Callable
from typing import Any

_WORD = re.compile(r"\s?[A-Za-z]+|\s?\d{1,3}|\s?[-=_*#]{1,16}|\s+|[^\sA-Za-z\d]")
_LEVELS = ("INFO", "INFO", "INFO", "DEBUG", "WARN")
_NAMES = ("alpha", "beta", "gamma", "delta", "omega", "sigma")


@functools.cache
def _id(word: str) -> int:
    return int.from_bytes(word.encode(), "little") % 150_000


def word_tokens(text: str) -> list[int]:
    """As large vocabularies cut: a word, up to three digits, a run of one mark."""
    return [_id(word) for word in _WORD.findall(text)]


def byte_tokens(text: str) -> list[int]:
    """As the smallest vocabulary cuts."""
    return list(text.encode())


def table(draw: random.Random) -> str:
    """Rows of few different values; most rows are equal to others."""
    columns, values = draw.randint(2, 8), draw.choice((("0", "1"), ("yes", "no", "n/a"), ("0.0", "-", "1.5")))
    rows = ("| " + " | ".join(draw.choices(values, k=columns)) + " |" for _ in range(draw.randint(5, 400)))
    head = "| " + " | ".join(draw.choices(_NAMES, k=columns)) + " |\n|" + "---|" * columns
    return head + "\n" + "\n".join(rows)


def zeros(draw: random.Random) -> str:
    """An array of one value."""
    width, value = draw.choice((8, 16, 32)), draw.choice(("0", "0.0", "0x00", "NULL", "false"))
    row = "    " + ", ".join([value] * width) + ",\n"
    most = min(draw.randint(1, 30), 1_900 // len(row))
    return f"static const int table[] = {{\n{row * most}}};\n"


def code(draw: random.Random) -> str:
    """Fields, cases and assertions that differ by a name or a number."""
    lines: list[str] = []
    for number in range(draw.randint(10, 300)):
        name = draw.choice(_NAMES)
        lines.append(
            draw.choice(
                (
                    f"        case {number}: return {name}_{number % 10};",
                    f"    assert_eq!({name}.get({number}), Some({number % 3}));",
                    f"    self.{name}{number} = {name}{number}",
                    "    }",
                    "",
                )
            )
        )
    return "\n".join(lines)


def log(draw: random.Random) -> str:
    """Lines with a time, of few kinds, some in long runs."""
    lines: list[str] = []
    clock = draw.randrange(80_000)
    for _ in range(draw.randint(20, 400)):
        clock += draw.choice((0, 0, 1, 5))
        stamp = f"{clock // 3600:02}:{clock // 60 % 60:02}:{clock % 60:02}"
        lines.append(
            f"{stamp} {draw.choice(_LEVELS)} worker {draw.randrange(3)}: connection refused, retrying"
        )
    return "\n".join(lines)


def plain_log(draw: random.Random) -> str:
    """One line without a time, up to twenty times, between others."""
    lines: list[str] = []
    for number in range(draw.randint(1, 12)):
        name = _NAMES[number % len(_NAMES)]
        lines += [f"error: {name}: no such file or directory"] * draw.randint(1, 20)
    return "\n".join(lines)


def records(draw: random.Random) -> str:
    """JSON of equal shape, with few values."""
    rows: list[dict[str, Any]] = [
        {"id": number, "ok": draw.random() < 0.9, "tags": [], "value": draw.choice((0, 1, None))}
        for number in range(draw.randint(10, 250))
    ]
    return json.dumps(rows, indent=draw.choice((None, 2)))


def drawing(draw: random.Random) -> str:
    """Lines of marks, boxes, empty lines."""
    width = draw.randint(10, 120)
    middle = ("|" + " " * width + "|\n") * min(draw.randint(1, 40), 1_900 // (width + 3))
    return f"+{'-' * width}+\n{middle}+{'=' * width}+\n" + "\n" * draw.randint(0, 40)


def verse(draw: random.Random) -> str:
    """A song: verses, and a refrain up to seven times."""
    refrain = " ".join(draw.choices(_NAMES, k=draw.randint(5, 60))) + ".\n"
    parts = (" ".join(draw.choices(_NAMES, k=20)) + ".\n" + refrain for _ in range(draw.randint(2, 30)))
    return "".join(parts) + refrain * draw.randint(0, 6)


KINDS_OF_TEXT: dict[str, Callable[[random.Random], str]] = {
    make.__name__: make for make in (table, zeros, code, log, plain_log, records, drawing, verse)
}
