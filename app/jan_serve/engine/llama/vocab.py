"""A model's vocabulary: text to tokens, tokens to bytes, special tokens. Thread-safe: immutable after loading."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from jan_serve.core.models import SpecialToken
from jan_serve.engine.llama.bindings import lib

_ROLES = {
    "bos": lib.llama_vocab_bos,
    "eos": lib.llama_vocab_eos,
    "eot": lib.llama_vocab_eot,
    "sep": lib.llama_vocab_sep,
    "nl": lib.llama_vocab_nl,
    "pad": lib.llama_vocab_pad,
    "mask": lib.llama_vocab_mask,
    "fim_pre": lib.llama_vocab_fim_pre,
    "fim_suf": lib.llama_vocab_fim_suf,
    "fim_mid": lib.llama_vocab_fim_mid,
    "fim_pad": lib.llama_vocab_fim_pad,
    "fim_rep": lib.llama_vocab_fim_rep,
    "fim_sep": lib.llama_vocab_fim_sep,
}
_APART = b"\x02"  # merges with nothing that precedes or follows it
_CONTROL, _USER_DEFINED = 1 << 3 | 1 << 0, 1 << 4  # LLAMA_TOKEN_ATTR_CONTROL and _UNKNOWN; _USER_DEFINED


class Vocab:
    """Wraps `llama_vocab`. Ids are 0 to n_tokens - 1."""

    def __init__(self, pointer: Any) -> None:
        self.pointer = pointer
        self.n_tokens: int = int(lib.llama_vocab_n_tokens(pointer))
        self.add_bos = bool(lib.llama_vocab_get_add_bos(pointer))
        self.add_eos = bool(lib.llama_vocab_get_add_eos(pointer))
        self.add_sep = bool(lib.llama_vocab_get_add_sep(pointer))
        self.special: dict[str, SpecialToken] = {}
        for role, getter in _ROLES.items():
            token = int(getter(pointer))
            if 0 <= token < self.n_tokens:
                text = self.piece(token, special=True).decode("utf-8", "replace")
                self.special[role] = SpecialToken(token, text)
        self.eog_ids: tuple[int, ...] = tuple(
            token for token in range(self.n_tokens) if lib.llama_vocab_is_eog(pointer, token)
        )
        self._eog = frozenset(self.eog_ids)
        alone = self.tokenize("a", add_special=False, parse_special=False)
        self._writes_space = b"".join(self.piece(token, special=False) for token in alone) == b" a"

    @property
    def bos_id(self) -> int | None:
        bos = self.special.get("bos")
        return None if bos is None else bos.id

    def is_eog(self, token: int) -> bool:
        """Whether the token ends generation (EOS, EOT, EOM…)."""
        return token in self._eog

    def is_control(self, token: int) -> bool:
        """Whether the token has no text for readers."""
        return bool(int(lib.llama_vocab_get_attr(self.pointer, token)) & _CONTROL)

    def is_markup(self, token: int) -> bool:
        """Whether the token is markup of a chat format: a control token, or one added for a marker (`<tool_call>`)."""
        return bool(int(lib.llama_vocab_get_attr(self.pointer, token)) & (_CONTROL | _USER_DEFINED))

    def control_token(self, text: str) -> int | None:
        """The control token with this text, or None."""
        tokens = self.tokenize(text, add_special=False, parse_special=True)
        return tokens[0] if len(tokens) == 1 and self.is_control(tokens[0]) else None

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """`llama_tokenize`. Text must have no lone surrogates. Its time grows with the square of the special tokens."""
        return self.tokenize_bytes(text.encode("utf-8"), add_special=add_special, parse_special=parse_special)

    def tokenize_inside(self, text: str, *, parse_special: bool) -> list[int]:
        """The tokens of a text that another one precedes: their pieces are the text, without spaces that the vocabulary
        would add. Empty where it cannot write the text."""
        data = text.encode("utf-8")
        tokens: list[int] = []
        while data:
            found, written = self._beginning(data, parse_special)
            if not written:
                return []
            tokens += found
            data = data[written:]
        return tokens

    def _beginning(self, data: bytes, parse_special: bool) -> tuple[list[int], int]:
        """The first tokens of a text, as far as their pieces are its bytes, and how many bytes these are."""
        head = _APART if self._writes_space else b""
        tokens = self.tokenize_bytes(head + data, add_special=False, parse_special=parse_special)
        pieces = [self.piece(token, special=True) for token in tokens]
        first = pieces.index(head) + 1 if head in pieces else 0
        written, number = 0, first
        while number < len(tokens) and data.startswith(pieces[number], written):
            written += len(pieces[number])
            number += 1
        return tokens[first:number], written

    def tokenize_bytes(self, data: bytes, *, add_special: bool, parse_special: bool) -> list[int]:
        """Tokenise UTF-8 as `tokenize` does. Other threads run meanwhile."""
        # Every token covers at least one byte, except BOS, EOS and a leading space that the vocabulary may add.
        capacity = len(data) + 8
        while True:
            buffer = (lib.llama_token * capacity)()
            given = (self.pointer, data, len(data), buffer, capacity, add_special, parse_special)
            count = lib.llama_tokenize(*given)
            if count >= 0:
                return buffer[:count]
            capacity = -count

    def piece(self, token: int, *, special: bool) -> bytes:
        """`llama_token_to_piece`: the exact bytes of a token; empty for a control token unless `special`."""
        buffer = ctypes.create_string_buffer(64)
        size = lib.llama_token_to_piece(self.pointer, token, buffer, 64, 0, special)
        if size < 0:
            buffer = ctypes.create_string_buffer(-size)
            size = lib.llama_token_to_piece(self.pointer, token, buffer, -size, 0, special)
        return buffer.raw[: max(size, 0)]

    def entry(self, token: int) -> str:
        """`llama_vocab_get_text`: how the vocabulary spells it, such as `Ġthe`, `▁the` or `<0x0A>`."""
        text: bytes = lib.llama_vocab_get_text(self.pointer, token)
        return text.decode("utf-8", "replace")

    def detokenize(self, tokens: Sequence[int], *, remove_special: bool) -> bytes:
        """`llama_detokenize`: the bytes of a whole text. The caller must have checked the ids."""
        if not tokens:
            return b""
        ids = (lib.llama_token * len(tokens))(*tokens)
        capacity = 16 * len(tokens) + 64
        while True:
            buffer = ctypes.create_string_buffer(capacity)
            given = (self.pointer, ids, len(tokens), buffer, capacity, remove_special, not remove_special)
            size = int(lib.llama_detokenize(*given))
            if size >= 0:
                return buffer.raw[:size]
            capacity = -size

    def pieces(self, tokens: range | None = None) -> list[bytes]:
        """The bytes of these tokens, by default of all; special ones have their text."""
        to_piece, pointer, buffer = lib.llama_token_to_piece, self.pointer, ctypes.create_string_buffer(64)
        tokens = range(self.n_tokens) if tokens is None else tokens
        sizes = (to_piece(pointer, token, buffer, 64, 0, True) for token in tokens)
        return [
            ctypes.string_at(buffer, size) if size >= 0 else self.piece(token, special=True)
            for token, size in zip(tokens, sizes, strict=True)
        ]
