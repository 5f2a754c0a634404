"""Executors constrain a sequence to a grammar, token by token, and to another rule beside it: bounds of long texts."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, ClassVar, Final, Generic, NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt

from jan_serve.core.constraint import TextBounds
from jan_serve.engine.constraint.token_tables import TokenSearch
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
    """The state of one sequence in a Lark grammar: llguidance's matcher. Handles EOG tokens itself: llguidance knows a
    single EOS."""

    def __init__(self, tokenizer: Any, lark: str, vocab: Vocab) -> None:
        """Raises InvalidGrammar, GrammarTooComplex. Blocks for a second at most."""
        self._matcher = made_matcher(tokenizer, lark)
        self._vocab = vocab
        self._bits = np.zeros((vocab.n_tokens + 31) // 32, np.int32)

    def copy(self) -> Self:
        """A copy in the same state. Cheap: both share the compiled grammar."""
        twin = copy(self)
        twin._matcher = self._matcher.deep_copy()
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


_CONTINUED: Final = bytes(range(0x80, 0xC0))
"""Bytes of a character after its first one."""
_LONGEST_MARK: Final = 4_096
"""Bytes of a name or key with all around it."""


class CountState(NamedTuple):
    """tool: the one that is called, if it has bounds. most: characters of the open value; None where none is open or
    it has no bound. written: those that are there. text: what may be the beginning of a mark, which `written` does not
    have. is_first: whether `text` is all so far."""

    tool: str | None = None
    is_value: bool = False
    most: int | None = None
    written: int = 0
    text: bytes = b""
    is_first: bool = True


class TextCounter:
    """The rules of one grammar; all methods are functions of the states."""

    def __init__(self, bounds: TextBounds) -> None:
        marks = bounds.marks
        self._most = bounds.most
        self._stop, self._gap = marks.stop.encode(), marks.gap.encode()
        self._stops = list(dict.fromkeys([self._stop, self._gap + self._stop]))
        keys = dict.fromkeys(key for most in bounds.most.values() for key in most)
        key = f"(?:{_any_of(keys, 'key', marks.key)})"
        value = f"(?P<value>{marks.before_key}{key}{marks.after_key})"
        name = f"(?:{_any_of(dict.fromkeys(bounds.most), 'tool', '.+?')}){marks.after_name}"
        self._next = _compiled(f"{marks.before_name}{name}|{value}")
        before = rf"(?:{marks.before_name}|\A{bounds.start})" if bounds.start else marks.before_name
        self._first = _compiled(f"{before}{name}|{value}")

    def written(self, state: CountState, data: bytes) -> CountState | None:
        """The state after more bytes, which the grammar allows; None if a value is longer than it may be."""
        text = state.text + data
        while True:
            if state.is_value:
                end = text.find(self._stop)
                inside = (
                    text[:end].removesuffix(self._gap) if end >= 0 else text[: len(text) - self._begun(text)]
                )
                count = state.written + characters(inside)
                if state.most is not None and count > state.most:
                    return None
                if end < 0:
                    return state._replace(written=count, text=text[len(inside) :])
                state = CountState(state.tool, is_first=False)
                text = text[end + len(self._stop) :]
            mark = (self._first if state.is_first else self._next).search(text)
            if mark is None:
                is_whole = state.is_first and len(text) <= _LONGEST_MARK
                return state._replace(text=text[-_LONGEST_MARK:], is_first=is_whole)
            text = text[mark.end() :]
            if mark["value"] is None:
                state = CountState(_named(mark["tool"]), is_first=False)
            else:
                tool, key = state.tool, _named(mark["key"])
                most = None if tool is None or key is None else self._most[tool].get(key)
                state = CountState(state.tool, True, most, is_first=False)

    def room(self, state: CountState) -> int | None:
        """How many more characters the open value may have, if what may begin its stop is text; None: any number."""
        return None if state.most is None else state.most - state.written - characters(state.text)

    def stop_bytes(self, state: CountState) -> list[bytes]:
        """One of these is in each token that begins the stop or goes on with it."""
        at = len(state.text)
        return [byte for stop in self._stops for byte in (stop[:1], stop[at : at + 1]) if byte]

    def _begun(self, text: bytes) -> int:
        """How much of the stop the text ends with."""
        begun = (stop[:size] for stop in self._stops for size in range(len(stop)))
        return max(len(part) for part in begun if text.endswith(part))


def characters(text: bytes) -> int:
    """The characters that begin in a part of a text."""
    return len(text.translate(None, _CONTINUED))


def _named(found: bytes | None) -> str | None:
    return None if found is None else found.decode()


def _any_of(known: dict[str, None], group: str, other: str) -> str:
    words = "|".join(map(re.escape, known))
    return f"(?P<{group}>{words})|{other}"


def _compiled(pattern: str) -> re.Pattern[bytes]:
    return re.compile(pattern.encode(), re.DOTALL)


class TokenSizes:
    """The tokens of a vocabulary by their characters, as `characters` counts them. Built once."""

    def __init__(self, pieces: Sequence[bytes], search: TokenSearch) -> None:
        self.pieces = pieces
        self._search = search
        begun = np.frombuffer(search.joined, np.uint8) & 0xC0 != 0x80
        self.characters = np.diff(np.concatenate([[0], np.cumsum(begun)])[search.ends], prepend=0)
        self.longest = int(self.characters.max())

    def with_any(self, texts: Sequence[bytes]) -> npt.NDArray[np.bool_]:
        """Which tokens have one of these texts in them."""
        found = np.zeros(len(self.pieces), np.bool_)
        for text in texts:
            found[self._search.containing(text)] = True
        return found


class CountingExecutor(RuledExecutor[CountState]):
    """A GrammarExecutor whose texts also obey bounds."""

    _broken = "a text that is longer than its bound"

    def __init__(
        self, tokenizer: Any, lark: str, vocab: Vocab, bounds: TextBounds, tokens: Callable[[], TokenSizes]
    ) -> None:
        super().__init__(tokenizer, lark, vocab)
        self._counter = TextCounter(bounds)
        self._tokens = tokens
        self._state = CountState()

    def mask(self, logits: Floats) -> Floats:
        out = super().mask(logits)
        room = self._counter.room(self._state)
        if room is None or room >= (tokens := self._tokens()).longest:
            return out
        # One that is longer than the room begins the stop or goes on with it.
        longer = tokens.characters > room
        stops = tokens.with_any(self._counter.stop_bytes(self._state))
        out[longer & ~stops] = -np.inf
        for token in np.nonzero(longer & stops & (out > -np.inf))[0]:
            if self._written(int(token)) is None:
                out[token] = -np.inf
        return out

    def _written(self, token: int) -> CountState | None:
        return self._counter.written(self._state, self._tokens().pieces[token])
