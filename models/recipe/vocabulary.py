"""The byte-level BPE vocabulary of the built-in model and of the fixtures: ids, token types, special tokens.

Numpy- and torch-free. What it is not: a tokenizer (llama.cpp and the ``tokenizers`` package do that).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

END_OF_TEXT = "<|endoftext|>"
TURN_START = "<|im_start|>"
TURN_END = "<|im_end|>"
FIM_PREFIX = "<|fim_prefix|>"
FIM_SUFFIX = "<|fim_suffix|>"
FIM_MIDDLE = "<|fim_middle|>"
TOOL_CALL_START = "<tool_call>"
TOOL_CALL_END = "</tool_call>"
THINK_START = "<think>"
THINK_END = "</think>"

# Control tokens are never shown as text and only parsed where the caller asks for special tokens.
CONTROL_TOKENS: tuple[str, ...] = (END_OF_TEXT, TURN_START, TURN_END, FIM_PREFIX, FIM_SUFFIX, FIM_MIDDLE)
# Marker tokens are shown as text, so that a stream parser sees them.
MARKER_TOKENS: tuple[str, ...] = (TOOL_CALL_START, TOOL_CALL_END, THINK_START, THINK_END)
SPECIAL_TOKENS: tuple[str, ...] = CONTROL_TOKENS + MARKER_TOKENS

# ``tokenizer.ggml.pre``: single digits, words with at most one leading non-letter (Qwen2's splitting rule).
PRE_TOKENIZER = "qwen2"

# A token of letters only, after the stand-in of a space or a mark.
_WORD_PIECE = re.compile("[^A-Za-z]?([A-Z]?[a-z]+)")


def byte_symbols() -> list[str]:
    """The 256 printable stand-ins for bytes, by byte value (GPT-2's ``bytes_to_unicode`` table)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {byte: chr(byte) for byte in printable}
    for spare, byte in enumerate(byte for byte in range(256) if byte not in table):
        table[byte] = chr(256 + spare)
    return [table[byte] for byte in range(256)]


@dataclass(frozen=True)
class Vocabulary:
    """Tokens by id (special tokens first, then bytes, then merges) and the merges in order of priority."""

    tokens: tuple[str, ...]
    merges: tuple[tuple[str, str], ...]

    @classmethod
    def from_merges(cls, merges: Iterable[tuple[str, str]]) -> Vocabulary:
        """Number the tokens that ``merges`` (highest priority first) make."""
        kept = tuple(merges)
        tokens = [*SPECIAL_TOKENS, *byte_symbols()]
        seen = set(tokens)
        for left, right in kept:
            if left + right not in seen:
                seen.add(left + right)
                tokens.append(left + right)
        return cls(tuple(tokens), kept)

    @classmethod
    def load(cls, path: Path) -> Vocabulary:
        """Read a file of :meth:`save`. Raises ``OSError`` or ``ValueError``."""
        merges = json.loads(path.read_text(encoding="utf-8"))["merges"]
        return cls.from_merges((left, right) for left, right in merges)

    def save(self, path: Path) -> None:
        path.write_text(json.dumps({"merges": self.merges}, ensure_ascii=False, indent=0), encoding="utf-8")

    def word_pieces(self) -> tuple[str, ...]:
        """The letters of plain tokens: lower case, without the space or mark before them, each once."""
        found = {match[1].lower() for token in self.tokens if (match := _WORD_PIECE.fullmatch(token))}
        return tuple(sorted(found))

    def id_of(self, token: str) -> int:
        """The id of an exact token. Raises ``ValueError`` for an unknown token."""
        return self.tokens.index(token)


def learn_merges(words: Sequence[str], count: int) -> list[tuple[str, str]]:
    """Plain byte-pair encoding: the ``count`` most frequent pairs, one after the other. Quadratic; for small lists."""
    symbols = byte_symbols()
    pieces = [[symbols[byte] for byte in word.encode()] for word in words]
    merges: list[tuple[str, str]] = []
    for _ in range(count):
        pairs = Counter(pair for piece in pieces for pair in pairwise(piece))
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        pieces = [_merge(piece, best) for piece in pieces]
    return merges


def _merge(piece: list[str], pair: tuple[str, str]) -> list[str]:
    merged: list[str] = []
    for symbol in piece:
        if merged and (merged[-1], symbol) == pair:
            merged[-1] += symbol
        else:
            merged.append(symbol)
    return merged
