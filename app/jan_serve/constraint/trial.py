"""Whether llguidance can follow a terminal: some intersections are short and need more states than it makes in a step.
Its limits count what it finds out about the tokens of a vocabulary. The tokens here stand for those of any model:
every byte, words, numbers, spaces and marks."""

from __future__ import annotations

import random
from functools import lru_cache
from typing import Any, Final

from jan_serve.constraint.ast import Expr, Grammar
from jan_serve.constraint.lark.print_lark import print_lark
from jan_serve.constraint.rules import reachable
from jan_serve.errors import GrammarTooComplex, InvalidGrammar
from jan_serve.lark_matcher import made_matcher, too_complex

_TOKENS: Final = 8_000
_LONGEST: Final = 12
_STEPS: Final = 16
_DRAWS: Final = 200
_SEED: Final = 1
_BEFORE: Final = (*[""] * 8, *[" "] * 8, '"')
"""Beginnings of tokens, each as often as in the vocabularies of models."""


def can_be_followed(expr: Expr, rules: dict[str, Expr]) -> bool:
    """Whether the masks along a text of a terminal are within the limits of the engine. rules: that it refers to."""
    return _is_within_limits(print_lark(Grammar(reachable({**rules, "root": expr}, "root"), "root")))


@lru_cache(maxsize=256)
def _is_within_limits(lark: str) -> bool:
    try:
        matcher = made_matcher(tokenizer(), lark)
        draw = random.Random(_SEED)
        for _ in range(_STEPS):
            token = drawn_token(matcher, draw)
            if token is None:
                break
            if not matcher.consume_token(token):
                raise too_complex(matcher)
    except (GrammarTooComplex, InvalidGrammar):
        return False
    return True


def drawn_token(matcher: Any, draw: random.Random) -> int | None:
    """A token that may follow, rather one that ends no string. None at the end. Raises GrammarTooComplex."""
    mask = int.from_bytes(matcher.compute_bitmask(), "little") & (1 << len(_tokens()) - 1) - 1
    if matcher.is_error():
        raise too_complex(matcher)
    allowed: int | None = None
    for _ in range(_DRAWS):
        token = draw.randrange(len(_tokens()) - 1)
        if mask >> token & 1:
            allowed = token
            if b'"' not in _tokens()[token]:
                return token
    return (mask & -mask).bit_length() - 1 if allowed is None and mask else allowed


@lru_cache(maxsize=1)
def _tokens() -> list[bytes]:
    draw = random.Random(_SEED)
    words = (
        "abcdefghijklmnopqrstuvwxyz",
        "ABCDEFGHIJ",
        "0123456789",
        " ",
        "\n",
        "\t",
        "éüßяжλ",
        "中文字。",
        "😀🎉",
    )
    marks = ("-_./:@#,;", "!?()[]{}<>=+*&%$'`^~|", "\\", '"')
    found = {bytes((byte,)): None for byte in range(256)}
    found.update(dict.fromkeys((run * length).encode() for run in " \n\ta0-=" for length in range(2, 129)))
    while len(found) < _TOKENS:
        kinds = draw.choices((*words, *marks), k=draw.randint(1, 3))
        runs = (draw.choices(kind, k=draw.randint(1, _LONGEST // len(kinds))) for kind in kinds)
        text = "".join(map("".join, runs))
        found[draw.choice(_BEFORE).encode() + text.encode()] = None
    return [*found, b"<end>"]


class _Parts:
    """What llguidance.TokenizerWrapper expects."""

    def __init__(self) -> None:
        self.tokens = _tokens()
        self.eos_token_id = len(self.tokens) - 1
        self.bos_token_id: int | None = None
        self.special_token_ids = [self.eos_token_id]

    def __call__(self, text: str | bytes) -> list[int]:
        return list(text if isinstance(text, bytes) else text.encode())


@lru_cache(maxsize=1)
def tokenizer() -> Any:
    import llguidance  # only some schemas need it

    wrapper = llguidance.TokenizerWrapper(_Parts())
    return llguidance.LLTokenizer(wrapper, n_vocab=len(_tokens()), slices=[])
