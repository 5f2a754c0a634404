"""A vocabulary of single letters for unit tests of the engine."""

from __future__ import annotations

from typing import Any, ClassVar, cast

from jan_serve.core.models import SpecialToken
from jan_serve.engine.llama.vocab import Vocab

LETTERS = "<>abcdefgh"
BOS, EOS = 0, 1


class SmallVocab:
    """`<` is BOS, `>` is EOS; every other letter is a token."""

    n_tokens = len(LETTERS)
    special: ClassVar = {"eos": SpecialToken(EOS, LETTERS[EOS])}
    eog_ids = (EOS,)
    bos_id = BOS
    add_bos = True
    pointer: Any = None

    def is_eog(self, token: int) -> bool:
        return token == EOS

    def is_control(self, token: int) -> bool:
        return token in (BOS, EOS)

    is_markup = is_control

    def piece(self, token: int, *, special: bool) -> bytes:
        return LETTERS[token].encode() if special or not self.is_control(token) else b""

    def pieces(self, tokens: range) -> list[bytes]:
        return [self.piece(token, special=True) for token in tokens]

    def entry(self, token: int) -> str:
        return LETTERS[token]

    def tokenize_inside(self, text: str, *, parse_special: bool) -> list[int]:
        return self.tokenize(text, add_special=False, parse_special=parse_special)

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        return [LETTERS.index(letter) for letter in text]

    def control_token(self, text: str) -> int | None:
        return LETTERS.index(text) if text in ("<", ">") else None


def small_vocab() -> Vocab:
    return cast(Vocab, SmallVocab())
