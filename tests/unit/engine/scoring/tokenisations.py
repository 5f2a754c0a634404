"""All tokenisations of a text over a small vocabulary."""

from __future__ import annotations

import itertools

from jan_serve.engine.scoring.options import Path

VOCABULARY = {0: b"a", 1: b"b", 2: b"ab", 3: b"ba", 4: b"aba", 5: b"c", 6: b"bc", 7: b"zz"}
PIECES: dict[bytes, list[int]] = {piece: [token] for token, piece in VOCABULARY.items()}


def paths_of(text: bytes) -> list[Path]:
    return [
        path
        for length in range(1, len(text) + 1)
        for path in itertools.product(VOCABULARY, repeat=length)
        if b"".join(VOCABULARY[token] for token in path) == text
    ]


def canonical(text: bytes) -> Path:
    return min(paths_of(text), key=lambda path: (len(path), path))
