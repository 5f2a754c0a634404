"""llguidance's table of a vocabulary, made beside the load of its model, so that no grammar waits for it."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

from jan_serve.engine.constraint.kept_tokens import KeptTokens, VocabularyTokens
from jan_serve.engine.llama.vocab import Vocab


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
        return self.vocab.tokenize(text, add_special=False, parse_special=False)


def made_tokenizer(parts: TokenizerParts) -> Any:
    """llguidance's. Holds the interpreter's lock, for up to a second."""
    # Not needed for the first answer.
    import llguidance

    wrapper = llguidance.TokenizerWrapper(parts)
    return llguidance.LLTokenizer(wrapper, n_vocab=len(parts.tokens), slices=[])


class EarlyTables:
    """Of a model for which an earlier worker made grammars, and kept its tokens."""

    def __init__(self, kept: KeptTokens) -> None:
        self.kept = kept
        self._made: Future[tuple[VocabularyTokens, TokenizerParts, Any] | None] = Future()

    def start(self) -> None:
        """In a thread of their own."""
        threading.Thread(target=self._make, name="token tables", daemon=True).start()

    def take(self, vocab: Vocab) -> tuple[VocabularyTokens, Any] | None:
        """The tokens and their table, once they are made. None if nothing was kept, or that of another vocabulary."""
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
