"""Constrains a sequence to a grammar, token by token."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from jan_serve.engine.llama.vocab import Vocab
from jan_serve.errors import GrammarTooComplex, InvalidGrammar

Floats = npt.NDArray[np.float32]

MAX_ITEMS_IN_ROW: Final = 4_000
"""Twice the default: an object of 500 optional properties begins in 1,000 ways as compact JSON, and again as spaced."""

MAX_GRAMMAR_SIZE: Final = 100_000
"""Symbols in its rules, as llguidance counts them: a fifth of its default. It takes about 13 µs of a CPU for each."""

MAX_TERMINAL_WORK: Final = 4_000_000
"""To find out which terminals have texts, in llguidance's measure: four times its default, 0.15 s of a CPU."""

_SPARSE: Final = 8
"""A mask with fewer than one in so many of its words set is unpacked word by word: of 262,144 tokens in 0.06 ms rather
than 0.5."""

# llguidance's messages for its limits, reworded for the author of the grammar.
_REASONS: Final = {
    "items; max": "more parses at once than the limit",
    "Too many items": "more parses at once than the limit",
    "fuel": "more work than the limit for one token",
    "too many states": "more states of its terminals than the limit",
}
_TOO_LARGE: Final = ("too big", "panic")
"""In its messages for its limits while it compiles. It has no other word for more symbols than 16 bits count."""


def made_matcher(tokenizer: Any, lark: str) -> Any:
    """llguidance's matcher at the start of a Lark grammar, within the limits of the engine.

    Raises InvalidGrammar, GrammarTooComplex. Blocks for a second at most.
    """
    import llguidance  # not needed for the first answer

    limits = llguidance.LLParserLimits(
        max_items_in_row=MAX_ITEMS_IN_ROW,
        max_grammar_size=MAX_GRAMMAR_SIZE,
        initial_lexer_fuel=MAX_TERMINAL_WORK,
    )
    grammar = llguidance.LLMatcher.grammar_from_lark(lark)
    matcher = llguidance.LLMatcher(tokenizer, grammar, log_level=0, limits=limits)
    if not matcher.is_error():
        return matcher
    reason = _reason(matcher.get_error())
    if any(words in reason for words in _TOO_LARGE):
        raise GrammarTooComplex(
            f"the grammar is too large: its rules have more than {MAX_GRAMMAR_SIZE} symbols, or its terminals"
            " need more work than the limit; use fewer alternatives and shorter patterns",
            param="grammar",
        )
    raise InvalidGrammar(f"the grammar cannot be compiled: {reason}")


class GrammarExecutor:
    """The state of one sequence in a Lark grammar: llguidance's matcher.

    Handles EOG tokens itself: llguidance knows a single EOS.
    """

    def __init__(self, tokenizer: Any, lark: str, vocab: Vocab) -> None:
        """Raises InvalidGrammar, GrammarTooComplex. Blocks for a second at most."""
        self._matcher = made_matcher(tokenizer, lark)
        self._vocab = vocab
        self._bits = np.zeros((vocab.n_tokens + 31) // 32, np.int32)

    def copy(self) -> GrammarExecutor:
        """A copy in the same state. Cheap: both share the compiled grammar."""
        twin = object.__new__(type(self))
        twin._matcher = self._matcher.deep_copy()
        twin._vocab = self._vocab
        twin._bits = np.zeros_like(self._bits)
        return twin

    def allows(self, token: int) -> bool:
        if self._vocab.is_eog(token):
            return bool(self._matcher.is_accepting())
        return bool(self._matcher.validate_tokens([token]) == 1)

    def mask(self, logits: Floats) -> Floats:
        """The logits, shape (n_vocab,), with every rejected token at -inf. Raises GrammarTooComplex."""
        self._matcher.unsafe_compute_mask_ptr(self._bits.ctypes.data, self._bits.nbytes)
        if self._matcher.is_error():
            raise self._too_complex()
        out = kept_logits(self._bits, logits)
        eog = list(self._vocab.eog_ids)
        out[eog] = logits[eog] if self._matcher.is_accepting() else -np.inf
        return out

    def accept(self, token: int) -> None:
        """Advance by an allowed token. Raises GrammarTooComplex."""
        if not self._vocab.is_eog(token) and not self._matcher.consume_token(token):
            raise self._too_complex()

    def forced(self) -> list[int]:
        """Advance past the tokens that must come next, in the model's tokenisation, and return them."""
        tokens: list[int] = []
        for token in self._matcher.compute_ff_tokens():
            if self._vocab.is_eog(token):
                break
            self.accept(token)
            tokens.append(token)
        return tokens

    def _too_complex(self) -> GrammarTooComplex:
        reason = _reason(self._matcher.get_error())
        return GrammarTooComplex(
            f"the grammar is too ambiguous at this point of the text ({reason});"
            " use bounded repeats and fewer optional parts that begin alike",
            param="grammar",
        )

    @property
    def is_complete(self) -> bool:
        """Whether the text is complete and nothing may follow: the sequence ends without an EOG token."""
        return bool(self._matcher.is_stopped()) and not self._matcher.is_error()


def kept_logits(bits: npt.NDArray[np.int32], logits: Floats) -> Floats:
    """The logits of the tokens whose bits are set, with all others at -inf."""
    words = np.nonzero(bits)[0]
    if _SPARSE * len(words) > len(bits):
        allowed = np.unpackbits(bits.view(np.uint8), bitorder="little")[: len(logits)].view(np.bool_)
        if 2 * np.count_nonzero(allowed) > len(allowed):
            out = logits.copy()
            out[np.flatnonzero(~allowed)] = -np.inf
            return out
        tokens = np.flatnonzero(allowed)
    else:
        some = np.unpackbits(bits[words].view(np.uint8), bitorder="little").view(np.bool_)
        tokens = (32 * words[:, None] + np.arange(32)).ravel()[some]
        tokens = tokens[tokens < len(logits)]
    out = np.full_like(logits, -np.inf)
    out[tokens] = logits[tokens]
    return out


def _reason(text: str) -> str:
    """The first line of llguidance's message, without the parser state that follows."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return "no reason was given"
    for words, reason in _REASONS.items():
        if words in lines[0]:
            return reason
    return lines[0].split(";")[0][:200]
