"""Grammars need tables of all tokens of a model: their bytes, an index of these, and llguidance's table of them. For
262,144 tokens the whole takes two seconds of a CPU, one of them for asking llama.cpp. It is made in steps, so that a
worker that rests can make it before the first grammar comes. The tokens of a model that had grammars before are kept
on disk, and most of its tables are made beside its load."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from jan_serve.engine.llama.vocab import Vocab


class TokenSearch:
    """Index over the pieces of all tokens, control tokens with their text. Built in 0.1 s for 152 k tokens.

    joined: all pieces, one after the other. ends: where each of them ends in it.
    """

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.joined = b"".join(pieces)
        self.ends = np.cumsum(np.fromiter(map(len, pieces), np.int64, len(pieces)))
        self._sorted = sorted(range(len(pieces)), key=pieces.__getitem__)
        self._keys = [pieces[token] for token in self._sorted]
        self._containing: dict[bytes, list[int]] = {}

    def beginning_with(self, prefix: bytes) -> list[int]:
        """Tokens whose bytes start with the non-empty `prefix`."""
        first = bisect_left(self._keys, prefix)
        end = bisect_right(self._keys, prefix, first, key=lambda piece: piece[: len(prefix)])
        return self._sorted[first:end]

    def beginning_of(self, text: bytes) -> list[int]:
        """Tokens whose bytes are a non-empty prefix of `text`, or all of it."""
        found: list[int] = []
        for end in range(1, len(text) + 1):
            prefix = text[:end]
            first = bisect_left(self._keys, prefix)
            if first == len(self._keys) or not self._keys[first].startswith(prefix):
                break  # no token goes on like the text
            found += self._sorted[first : bisect_right(self._keys, prefix, first)]
        return found

    def containing(self, text: bytes) -> list[int]:
        """Tokens whose bytes contain the non-empty `text`, in order. Cached: scans the vocabulary once per text."""
        found = self._containing.get(text)
        if found is None:
            starts: list[int] = []
            at = self.joined.find(text)
            while at >= 0:
                starts.append(at)
                at = self.joined.find(text, at + 1)
            first = np.array(starts, np.int64)
            tokens = np.searchsorted(self.ends, first, side="right")
            within = first + len(text) <= self.ends[tokens]
            found = self._containing[text] = list(dict.fromkeys(tokens[within].tolist()))
        return found


logger = logging.getLogger(__name__)

_SUFFIX: Final = ".tokens"
_MAGIC: Final = b"JANTOKS2"
"""Begins a file, with the format's number. A digest follows, then what it is of: `VocabularyTokens` as MessagePack."""
_DIGEST_BYTES: Final = 16
_BODY: Final = len(_MAGIC) + _DIGEST_BYTES
_MOST_FILES: Final = 16
_MOST_BYTES: Final = 64 << 20
"""Most bytes of a file. That of 262,144 tokens has a few MiB."""


class VocabularyTokens(msgspec.Struct, frozen=True):
    """pieces: the bytes of each token; special ones have their text. controls: ids of control tokens."""

    pieces: list[bytes]
    controls: list[int]
    eos: int


class KeptTokens:
    """The file of one model. Methods block on the disk; a failure costs time later, nothing else."""

    def __init__(self, folder: Path, key: Callable[[], str]) -> None:
        """key: differs for every model and llama.cpp; called once, by the first method. Raises OSError."""
        self._folder = folder
        self._key = key

    @cached_property
    def _path(self) -> Path:
        return self._folder / (self._key() + _SUFFIX)

    def read(self) -> VocabularyTokens | None:
        """None if there is no file, or one that this version did not write: the next `write` replaces it."""
        try:
            with self._path.open("rb") as file:
                raw = file.read(_MOST_BYTES)
            os.utime(self._path)
        except OSError:
            return None
        try:
            return _unpacked(raw)
        except (ValueError, RecursionError) as error:
            logger.warning("%s is not used: %s", self._path, error)
            return None

    def write(self, tokens: VocabularyTokens) -> None:
        """Replaces the file. Removes those of models that were not used for longest."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._remove_oldest()
            partial = self._path.with_suffix(f".{os.getpid()}.tmp")
            with open(partial, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
                file.write(_packed(tokens))
            os.replace(partial, self._path)
        except OSError as error:
            logger.warning("the tokens of the vocabulary were not written to %s: %s", self._folder, error)

    def _remove_oldest(self) -> None:
        files = sorted(self._folder.iterdir(), key=lambda path: path.stat().st_mtime_ns, reverse=True)
        for path in files[_MOST_FILES - 1 :]:
            with contextlib.suppress(FileNotFoundError):
                path.unlink()


def _packed(tokens: VocabularyTokens) -> bytes:
    body = msgspec.msgpack.encode(tokens)
    return _MAGIC + _digest(body) + body


def _unpacked(raw: bytes) -> VocabularyTokens:
    """Raises ValueError or MsgspecError for what `_packed` does not return."""
    magic, digest, body = raw[: len(_MAGIC)], raw[len(_MAGIC) : _BODY], raw[_BODY:]
    if magic != _MAGIC:
        raise ValueError("it has another format")
    if digest != _digest(body):
        raise ValueError("it is damaged")
    tokens = msgspec.msgpack.decode(body, type=VocabularyTokens)
    ids = (tokens.eos, *tokens.controls)
    if min(ids) < 0 or max(ids) >= len(tokens.pieces):
        raise ValueError(f"it names a token that is not among its {len(tokens.pieces)}")
    return tokens


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest()


class TokenizerParts:
    """What llguidance.TokenizerWrapper expects. vocab: None while the model loads; grammars come later."""

    def __init__(self, tokens: VocabularyTokens, vocab: Vocab | None = None) -> None:
        self.vocab = vocab
        self.eos_token_id = tokens.eos
        self.bos_token_id: int | None = None
        self.tokens = tokens.pieces
        self.special_token_ids = tokens.controls

    def __call__(self, text: str | bytes) -> list[int]:
        if self.vocab is None:
            return []
        text = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
        return self.vocab.tokenize_inside(text, parse_special=False)


def made_tokenizer(parts: TokenizerParts) -> Any:
    """llguidance's. Holds the interpreter's lock, for up to a second."""
    # Not needed for the first answer.
    import llguidance

    wrapper = llguidance.TokenizerWrapper(parts)
    return llguidance.LLTokenizer(wrapper, n_vocab=len(parts.tokens), slices=[])


class EarlyTables:
    """The tables of a model for which an earlier worker made grammars, and kept its tokens."""

    def __init__(self, kept: KeptTokens) -> None:
        self.kept = kept
        self._made: Future[tuple[VocabularyTokens, TokenizerParts, Any] | None] = Future()
        self._is_taken = False

    def start(self) -> None:
        """Make the tables in a thread of their own."""
        threading.Thread(target=self._make, name="token tables", daemon=True).start()

    def take(self, vocab: Vocab) -> tuple[VocabularyTokens, Any] | None:
        """The tokens and their table, once they are made. None if nothing was kept, or that of another vocabulary.
        Raises what ended the making. None at each further call."""
        if self._is_taken:
            return None
        self._is_taken = True
        made = self._made.result()
        if made is None or len(made[0].pieces) != vocab.n_tokens:
            return None
        tokens, parts, tokenizer = made
        parts.vocab = vocab
        return tokens, tokenizer

    def _make(self) -> None:
        try:
            tokens = self.kept.read()
            if tokens is None:
                self._made.set_result(None)
            else:
                parts = TokenizerParts(tokens)
                self._made.set_result((tokens, parts, made_tokenizer(parts)))
        except BaseException as error:  # `take` raises it
            self._made.set_exception(error)


_AT_ONCE: Final = 16_384
_MANY: Final = 32_768
"""Tokens of a vocabulary that is worth a file."""


class TokenTables:
    """The tables of one vocabulary. One thread makes and reads them."""

    def __init__(self, vocab: Vocab, early: EarlyTables | None = None) -> None:
        """early: None keeps nothing on disk."""
        self._vocab = vocab
        self._early = early
        self._tokens = VocabularyTokens([], [], _eos(vocab))
        self._tokenizer: Any = None
        self._search: TokenSearch | None = None
        self._steps = self._make()
        self._is_kept, self._has_grammars = vocab.n_tokens < _MANY or early is None, False
        self.complete = False

    def advance(self) -> None:
        """Make the next part. llguidance holds the interpreter's lock for as long as its parts take. What a part
        raises, for lack of memory too, leaves the earlier ones: the next call makes that part again."""
        try:
            self.complete = next(self._steps, "end") == "end"
        except BaseException:
            self._steps = self._make()
            raise
        self._keep()

    def pieces(self) -> list[bytes]:
        """The bytes of every token; special ones have their text."""
        while len(self._tokens.pieces) < self._vocab.n_tokens:
            self.advance()
        return self._tokens.pieces

    def tokenizer(self) -> Any:
        """llguidance's. Before the last step it has no slices, and the masks of free strings take longer."""
        while self._tokenizer is None:
            self.advance()
        self._has_grammars = True
        self._keep()
        return self._tokenizer

    def search(self) -> TokenSearch:
        """A rest makes it too: no answer then waits for it."""
        if self._search is None:
            self._search = TokenSearch(self.pieces())
        return self._search

    def _make(self) -> Iterator[None]:
        """The parts that are not made yet."""
        if self._tokenizer is None:
            early = self._early.take(self._vocab) if self._early is not None else None
            if early is not None:
                self._tokens, self._tokenizer = early
                self._is_kept = True
            else:
                yield from self._make_tokens()
                self._tokenizer = made_tokenizer(TokenizerParts(self._tokens, self._vocab))
            yield
        self._tokenizer = self._tokenizer.with_slices(self._tokenizer.general_slices())
        yield
        self.search()

    def _make_tokens(self) -> Iterator[None]:
        tokens = self._tokens
        for first in range(len(tokens.pieces), self._vocab.n_tokens, _AT_ONCE):
            ids = range(first, min(first + _AT_ONCE, self._vocab.n_tokens))
            pieces, controls = self._vocab.pieces(ids), list(filter(self._vocab.is_control, ids))
            tokens.pieces.extend(pieces)
            tokens.controls.extend(controls)
            yield

    def _keep(self) -> None:
        """Keep the tables for the next worker if this model has grammars: others load without paying for them."""
        if self.complete and self._has_grammars and not self._is_kept and self._early is not None:
            self._is_kept = True
            self._early.kept.write(self._tokens)


def _eos(vocab: Vocab) -> int:
    eos = vocab.special.get("eos") or vocab.special.get("eot")
    return eos.id if eos is not None else vocab.n_tokens - 1
