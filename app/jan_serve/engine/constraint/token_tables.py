"""What grammars need of all tokens of a model: their bytes, and llguidance's table of them.

For 262,144 tokens the whole takes two seconds of a CPU. It is made in steps, so that a worker that rests can make it
before the first grammar comes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from jan_serve.engine.llama.vocab import Vocab

_AT_ONCE: Final = 16_384


class TokenTables:
    """The tables of one vocabulary. One thread makes and reads them."""

    def __init__(self, vocab: Vocab) -> None:
        self._vocab = vocab
        self._pieces: list[bytes] = []
        self._controls: list[int] = []
        self._tokenizer: Any = None
        self._steps = self._make()
        self.complete = False

    def advance(self) -> None:
        """Make the next part. llguidance holds the interpreter's lock for as long as its parts take."""
        self.complete = next(self._steps, "end") == "end"

    def pieces(self) -> list[bytes]:
        """The bytes of every token; special ones have their text."""
        while len(self._pieces) < self._vocab.n_tokens:
            self.advance()
        return self._pieces

    def tokenizer(self) -> Any:
        """llguidance's. Before the last step it has no slices, and the masks of free strings take longer."""
        while self._tokenizer is None:
            self.advance()
        return self._tokenizer

    def _make(self) -> Iterator[None]:
        # Not needed for the first answer.
        import llguidance

        vocab = self._vocab
        for first in range(0, vocab.n_tokens, _AT_ONCE):
            tokens = range(first, min(first + _AT_ONCE, vocab.n_tokens))
            self._pieces += vocab.pieces(tokens)
            self._controls += filter(vocab.is_control, tokens)
            yield
        wrapper = llguidance.TokenizerWrapper(_Adapter(vocab, self._pieces, self._controls))
        self._tokenizer = llguidance.LLTokenizer(wrapper, n_vocab=vocab.n_tokens, slices=[])
        yield
        self._tokenizer = self._tokenizer.with_slices(llguidance.LLTokenizer.general_slices())


class _Adapter:
    """The tokenizer interface that llguidance.TokenizerWrapper expects."""

    def __init__(self, vocab: Vocab, tokens: list[bytes], special_token_ids: list[int]) -> None:
        self._vocab = vocab
        eos = vocab.special.get("eos") or vocab.special.get("eot")
        self.eos_token_id = eos.id if eos is not None else vocab.n_tokens - 1
        self.bos_token_id: int | None = None
        self.tokens = tokens
        self.special_token_ids = special_token_ids

    def __call__(self, text: str | bytes) -> list[int]:
        text = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
        return self._vocab.tokenize(text, add_special=False, parse_special=False)
