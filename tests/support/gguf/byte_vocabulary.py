"""A vocabulary of bytes, and of longer pieces, for tests of constraints without a model. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar, cast

from jan_serve.core.models import SpecialToken
from jan_serve.engine.llama.vocab import Vocab

EOS = 1
FIRST_BYTE = 2
"""The token of byte 0, where all bytes are pieces."""
ALL_BYTES = tuple(bytes((byte,)) for byte in range(256))


def pieces_of(longer: Iterable[str] = (), *, single: Iterable[bytes] = ALL_BYTES) -> tuple[bytes, ...]:
    """The bytes of each token: two control tokens, single bytes, then the longer texts."""
    return (b"<s>", b"</s>", *single, *(text.encode() for text in longer))


def byte_vocabulary(pieces: tuple[bytes, ...], controls: Iterable[str] = ()) -> Vocab:
    """A vocabulary of these pieces, the first two of which are control tokens, and then of more control tokens."""
    return cast(Vocab, _ByteVocabulary(pieces, [text.encode() for text in controls]))


class _ByteVocabulary:
    """Text has one token for each byte."""

    eog_ids = (EOS,)
    special: ClassVar = {"eos": SpecialToken(EOS, "</s>")}

    def __init__(self, pieces: tuple[bytes, ...], controls: Sequence[bytes]) -> None:
        self._pieces = (*pieces, *controls)
        self._controls = {text: len(pieces) + number for number, text in enumerate(controls)}
        self.n_tokens = len(self._pieces)

    def is_eog(self, token: int) -> bool:
        return token in self.eog_ids

    def is_control(self, token: int) -> bool:
        return token < FIRST_BYTE or token in self._controls.values()

    def control_token(self, text: str) -> int | None:
        return self._controls.get(text.encode())

    def piece(self, token: int, *, special: bool) -> bytes:
        return self._pieces[token] if special or not self.is_control(token) else b""

    def pieces(self, tokens: range) -> list[bytes]:
        return [self._pieces[token] for token in tokens]

    def tokenize_inside(self, text: str, *, parse_special: bool) -> list[int]:
        return self.tokenize(text, add_special=False, parse_special=parse_special)

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        return [self._pieces.index(bytes((byte,))) for byte in text.encode()]
