"""What grammars need of all tokens of a model: their bytes, and llguidance's table of them.

For 262,144 tokens the whole takes two seconds of a CPU. It is made in steps, so that a worker that rests can make it
before the first grammar comes. A model that had grammars before has most of it made beside its load.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from jan_serve.engine.constraint.early_tables import EarlyTables, TokenizerParts, made_tokenizer
from jan_serve.engine.constraint.kept_tokens import VocabularyTokens
from jan_serve.engine.constraint.token_search import TokenSearch
from jan_serve.engine.llama.vocab import Vocab

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
        """Make the next part. llguidance holds the interpreter's lock for as long as its parts take."""
        self.complete = next(self._steps, "end") == "end"
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
        for first in range(0, self._vocab.n_tokens, _AT_ONCE):
            ids = range(first, min(first + _AT_ONCE, self._vocab.n_tokens))
            self._tokens.pieces.extend(self._vocab.pieces(ids))
            self._tokens.controls.extend(filter(self._vocab.is_control, ids))
            yield

    def _keep(self) -> None:
        """For the next worker, if this model has grammars: others do not pay for tables while they load."""
        if self.complete and self._has_grammars and not self._is_kept and self._early is not None:
            self._is_kept = True
            self._early.kept.write(self._tokens)


def _eos(vocab: Vocab) -> int:
    eos = vocab.special.get("eos") or vocab.special.get("eot")
    return eos.id if eos is not None else vocab.n_tokens - 1
