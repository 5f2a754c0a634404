"""A GrammarExecutor constrains a sequence to a grammar, token by token; a RuledExecutor also to another rule."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from jan_serve.engine.llama.vocab import Vocab
from jan_serve.errors import EngineFailure
from jan_serve.lark_matcher import made_matcher, too_complex

Floats = npt.NDArray[np.float32]

_KEPT: Final[Floats] = np.where(
    np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little") == 1, np.inf, -np.inf
).astype(np.float32)
"""The most that the logits of eight tokens may be, by the byte of their bits. A look-up takes a quarter of the time of
unpacking them."""


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
            raise too_complex(self._matcher)
        out = kept_logits(self._bits, logits)
        may_end = self._matcher.is_accepting()
        for token in self._vocab.eog_ids:
            out[token] = logits[token] if may_end else -np.inf
        return out

    def accept(self, token: int) -> None:
        """Advance by an allowed token. Raises GrammarTooComplex."""
        if not self._vocab.is_eog(token) and not self._matcher.consume_token(token):
            raise too_complex(self._matcher)

    def forced(self) -> list[int]:
        """Advance past the tokens that must come next, in the model's tokenisation, and return them."""
        tokens: list[int] = []
        for token in self._matcher.compute_ff_tokens():
            if self._vocab.is_eog(token):
                break
            self.accept(token)
            tokens.append(token)
        return tokens

    @property
    def is_complete(self) -> bool:
        """Whether the text is complete and nothing may follow: the sequence ends without an EOG token."""
        return bool(self._matcher.is_stopped()) and not self._matcher.is_error()


def kept_logits(bits: npt.NDArray[np.int32], logits: Floats) -> Floats:
    """The logits of the tokens whose bits are set, with all others at -inf."""
    most = _KEPT.take(bits.view(np.uint8), axis=0).reshape(-1)[: len(logits)]
    return np.fmin(most, logits, out=most)


S = TypeVar("S")


class RuledExecutor(GrammarExecutor, Generic[S]):
    """`_state`: of the rule, immutable. `_broken`: what was written where a text breaks the rule."""

    _state: S
    _broken: ClassVar[str]

    @abstractmethod
    def _written(self, token: int) -> S | None:
        """The state after a token that the grammar allows; None if the rule does not."""

    def allows(self, token: int) -> bool:
        return super().allows(token) and (self._vocab.is_eog(token) or self._written(token) is not None)

    def accept(self, token: int) -> None:
        """See GrammarExecutor. Raises EngineFailure for a token that neither `allows` nor `mask` lets pass."""
        super().accept(token)
        if self._vocab.is_eog(token):
            return
        written = self._written(token)
        if written is None:
            raise EngineFailure(f"The engine wrote {self._broken}.")
        self._state = written
