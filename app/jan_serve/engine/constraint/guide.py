"""Follows a Guide through one answer: thought, lead, grammar, or free text with triggers. Sampling and jump-forward
treat it like any grammar. Free text allows every token except those that cross a marker into text that the marker's
grammar rejects."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from jan_serve.core.constraint import Guide, ThoughtGuide
from jan_serve.engine.constraint.grammar_executor import GrammarExecutor
from jan_serve.engine.constraint.token_tables import TokenSearch
from jan_serve.engine.llama.vocab import Vocab
from jan_serve.errors import GrammarTooComplex

Floats = npt.NDArray[np.float32]


class GuideTools(NamedTuple):
    """Parts of the model. grammar, triggers: make a new executor of the guide's grammar and of each trigger's."""

    vocab: Vocab
    search: Callable[[], TokenSearch]
    grammar: Callable[[], GrammarExecutor] | None
    triggers: tuple[Callable[[], GrammarExecutor], ...]


class _Stage(enum.Enum):
    START = enum.auto()
    """The text so far may still become a thought or the grammar's text."""
    THOUGHT = enum.auto()
    GRAMMAR = enum.auto()
    FREE = enum.auto()


class _Hit(NamedTuple):
    """A marker in free text. trigger: its index; None if the marker opens a thought."""

    start: int
    end: int
    trigger: int | None


class _Marker(NamedTuple):
    """A trigger with a confirmation. length: of the trigger alone, after which its grammar begins."""

    text: bytes
    length: int
    trigger: int


class _LedGrammar:
    """A lead of fixed tokens, then a grammar."""

    def __init__(self, lead: Iterable[int], grammar: GrammarExecutor) -> None:
        self.lead = deque(lead)
        self.grammar = grammar

    def allows(self, token: int) -> bool:
        return token == self.lead[0] if self.lead else self.grammar.allows(token)

    def accept(self, token: int) -> None:
        if self.lead:
            self.lead.popleft()
        else:
            self.grammar.accept(token)

    def mask(self, logits: Floats) -> Floats:
        return _only(logits, [self.lead[0]]) if self.lead else self.grammar.mask(logits)

    def forced(self) -> list[int]:
        tokens = list(self.lead)
        self.lead.clear()
        return tokens + self.grammar.forced()

    @property
    def is_complete(self) -> bool:
        return not self.lead and self.grammar.is_complete


class GuidedExecutor:
    """The state of one answer in its Guide. reasoning_tokens: tokens of thoughts so far, with their markers."""

    def __init__(self, guide: Guide, tools: GuideTools) -> None:
        self._guide = guide
        self._tools = tools
        self._vocab = tools.vocab
        thought = guide.thought
        marks = ((), (), ()) if thought is None else (thought.opens, thought.closes, thought.ends)
        self._opens, self._closes, ends = map(_encoded, marks)
        self._ends = ends if guide.grammar is None else ()
        # What would end the thought without a closing marker, and so lead past the grammar.
        self._barred = () if guide.grammar is None else ends
        self._triggers = tuple(
            _Marker((trigger.text + confirmation).encode(), len(trigger.text.encode()), number)
            for number, trigger in enumerate(guide.triggers)
            for confirmation in trigger.confirmations or ("",)
        )
        triggers = (marker.text for marker in self._triggers)
        self._longest = max(map(len, (*self._opens, *self._closes, *ends, *triggers)), default=1)
        # The end of the free text or thought, as long as the longest marker; in START all text so far.
        self._tail = b""
        # Free text: whether only white space precedes the tail, since the start or the last thought.
        self._blank = True
        self._constrained: _LedGrammar | None = None
        # Tokens left to close a thought that used up its budget.
        self._closing: deque[int] = deque()
        self.reasoning_tokens = 0
        self._stage = self._first_stage(thought)
        self._check_budget()

    def _first_stage(self, thought: ThoughtGuide | None) -> _Stage:
        if thought is not None and thought.is_open:
            return _Stage.THOUGHT
        if self._guide.grammar is None:
            return _Stage.FREE
        self._constrained = self._grammar(self._guide.lead)
        return _Stage.START if thought is not None and thought.may_open else _Stage.GRAMMAR

    # The methods of GrammarExecutor

    def allows(self, token: int) -> bool:
        if self._closing:
            return token == self._closing[0]
        follows = self._constrained is not None and self._constrained.allows(token)
        if self._stage is _Stage.GRAMMAR:
            return follows
        if self._vocab.is_eog(token):
            may_end = self._stage is _Stage.FREE or self._guide.grammar is None
            return follows if self._stage is _Stage.START else may_end
        piece = self._vocab.piece(token, special=True)
        if self._stage is _Stage.START:
            return follows or self._opens_thought(piece)
        if self._stage is _Stage.THOUGHT:
            return self._guide.grammar is None or self._ends_cleanly(piece)
        return self._triggers_cleanly(piece)

    def mask(self, logits: Floats) -> Floats:
        if self._closing:
            return _only(logits, [self._closing[0]])
        if self._stage is _Stage.GRAMMAR:
            assert self._constrained is not None
            return self._constrained.mask(logits)
        if self._stage is _Stage.START:
            search, written = self._tools.search(), len(self._tail)
            openers: list[int] = []
            for rest in (opener[written:] for opener in self._opens if opener.startswith(self._tail)):
                openers += (*search.beginning_of(rest), *search.beginning_with(rest))
            opening = _only(logits, openers)
            constrained = self._constrained
            return opening if constrained is None else np.maximum(opening, constrained.mask(logits))
        rejected = [token for token in self._suspects() if not self.allows(token)]
        if not rejected:
            return logits
        masked = logits.copy()
        masked[rejected] = -np.inf
        return masked

    def accept(self, token: int) -> None:
        if self._vocab.is_eog(token):
            return
        if self._closing:
            self._closing.popleft()
        if self._stage is _Stage.GRAMMAR:
            assert self._constrained is not None
            self._constrained.accept(token)
            self._leave_grammar()
            return
        piece = self._vocab.piece(token, special=True)
        if self._stage is _Stage.START:
            self._begin(token, piece)
        elif self._stage is _Stage.THOUGHT:
            self.reasoning_tokens += 1
            self._think(piece)
        else:
            self._free(piece)
        self._check_budget()

    def forced(self) -> list[int]:
        tokens: list[int] = []
        while self._closing:
            tokens.append(self._closing[0])
            self.accept(self._closing[0])
        if self._stage is _Stage.GRAMMAR:
            assert self._constrained is not None
            tokens += self._constrained.forced()
            self._leave_grammar()
        return tokens

    @property
    def is_complete(self) -> bool:
        constrained = self._constrained
        return self._stage is _Stage.GRAMMAR and constrained is not None and constrained.is_complete

    # The start of a constrained answer, which may be a thought

    def _opens_thought(self, piece: bytes) -> bool:
        written = self._tail + piece
        return bool(piece) and any(
            opener.startswith(written) or written.startswith(opener) for opener in self._opens
        )

    def _begin(self, token: int, piece: bytes) -> None:
        opens = self._opens_thought(piece)
        if self._constrained is not None and not self._constrained.allows(token):
            self._constrained = None
        if self._constrained is not None:
            self._constrained.accept(token)
        self._tail += piece
        if not opens:
            self._stage, self._tail = _Stage.GRAMMAR, b""
            return
        opener = next((o for o in self._opens if self._tail.startswith(o)), None)
        if opener is not None:
            self.reasoning_tokens += 1
            self._open_thought(self._tail[len(opener) :])

    # Thoughts

    def _open_thought(self, rest: bytes) -> None:
        self._stage, self._tail, self._constrained = _Stage.THOUGHT, b"", None
        self._think(rest)

    def _think(self, data: bytes) -> None:
        self._tail += data
        close = _first(self._tail, self._closes)
        end = _first(self._tail, self._ends)
        if close is not None and (end is None or close[0] <= end[0]):
            self._close_thought(self._tail[close[1] :])
        elif end is not None:
            self._stage, rest, self._tail, self._blank = _Stage.FREE, self._tail[end[0] :], b"", True
            self._free(rest)
        else:
            self._tail = self._tail[-self._longest :]

    def _close_thought(self, rest: bytes) -> None:
        self._tail, self._closing = b"", deque()
        if self._guide.grammar is None:
            self._stage, self._blank = _Stage.FREE, True
            self._free(rest)
            return
        # Only white space follows the marker in its token (`_ends_cleanly`); the lead does not repeat it.
        lead = self._guide.lead_after_thought
        self._constrained = self._grammar(lead.removeprefix(rest.decode("utf-8", "replace")))
        self._stage = _Stage.GRAMMAR

    def _ends_cleanly(self, piece: bytes) -> bool:
        data = self._tail + piece
        close, barred = _first(data, self._closes), _first(data, self._barred)
        if barred is not None and (close is None or barred[0] < close[0]):
            return False
        return close is None or not data[close[1] :].strip()

    def _check_budget(self) -> None:
        thought = self._guide.thought
        if thought is None or thought.budget is None or self._closing:
            return
        if self._stage is _Stage.THOUGHT and self.reasoning_tokens >= thought.budget:
            self._closing = deque(self._tokens(thought.closes[0]))

    # Free text

    def _free(self, data: bytes) -> None:
        self._tail += data
        hit = self._find(self._tail)
        if hit is None:
            cut = len(self._tail) - self._longest
            if cut > 0:
                self._blank = self._blank and not self._tail[:cut].strip()
                self._tail = self._tail[cut:]
            return
        rest, self._tail = self._tail[hit.end :], self._tail[: hit.end]
        if hit.trigger is None:
            self.reasoning_tokens += 1
            self._open_thought(rest)
            return
        grammar = self._after_trigger(hit.trigger, rest)
        if grammar is None:
            # The grammar rejects the text after the marker, so this is no call: skip the marker.
            self._blank = False
            self._tail = (self._tail[hit.start + 1 :] + rest)[-self._longest :]
            return
        self._stage, self._tail, self._constrained = _Stage.GRAMMAR, b"", _LedGrammar((), grammar)
        self._leave_grammar()

    def _find(self, data: bytes) -> _Hit | None:
        """The first marker that counts; of two at one position, the longer."""
        thought = self._guide.thought
        hits: list[_Hit] = []
        for opener in self._opens:
            start = data.find(opener)
            if start >= 0 and ((thought is not None and thought.anywhere) or self._is_blank(data[:start])):
                hits.append(_Hit(start, start + len(opener), None))
        for marker in self._triggers:
            start = data.find(marker.text)
            if start >= 0 and (not self._guide.at_start or self._is_blank(data[:start])):
                hits.append(_Hit(start, start + marker.length, marker.trigger))
        return min(hits, key=lambda hit: (hit.start, -hit.end), default=None)

    def _is_blank(self, data: bytes) -> bool:
        return self._blank and not data.strip()

    def _triggers_cleanly(self, piece: bytes) -> bool:
        if not self._triggers:
            return True
        data = self._tail + piece
        hit = self._find(data)
        if hit is None or hit.trigger is None or hit.end == len(data):
            return True
        return self._after_trigger(hit.trigger, data[hit.end :]) is not None

    def _after_trigger(self, number: int, rest: bytes) -> GrammarExecutor | None:
        """The trigger's grammar after `rest`; None if it rejects that text."""
        grammar = self._tools.triggers[number]()
        try:
            text = rest.decode("utf-8")
        except UnicodeDecodeError:
            return None
        for token in self._vocab.tokenize_inside(text, parse_special=False) if text else ():
            if not grammar.allows(token):
                return None
            grammar.accept(token)
        return grammar

    # All stages

    def _leave_grammar(self) -> None:
        """Return to free text after a triggered grammar."""
        if self._guide.grammar is None and self._guide.repeat and self.is_complete:
            self._stage, self._constrained, self._tail, self._blank = _Stage.FREE, None, b"", False

    def _suspects(self) -> set[int]:
        """Tokens that may cross a marker, and those that end the answer."""
        in_thought = self._stage is _Stage.THOUGHT
        triggers = (marker.text for marker in self._triggers)
        markers = (*self._closes, *self._barred) if in_thought else triggers
        search, found = self._tools.search(), set[int](self._vocab.eog_ids)
        for marker in markers:
            found.update(search.containing(marker))
            for split in range(1, len(marker)):
                if self._tail.endswith(marker[:split]):
                    found.update(search.beginning_with(marker[split:]))
        return found

    def _grammar(self, lead: str) -> _LedGrammar:
        if self._tools.grammar is None:
            raise GrammarTooComplex("the guide has no grammar", param="grammar")
        return _LedGrammar(self._tokens(lead), self._tools.grammar())

    def _tokens(self, text: str) -> list[int]:
        return self._vocab.tokenize_inside(text, parse_special=True) if text else []


def _encoded(texts: Iterable[str]) -> tuple[bytes, ...]:
    return tuple(text.encode("utf-8") for text in texts)


def _first(data: bytes, markers: Iterable[bytes]) -> tuple[int, int] | None:
    """Start and end of the first marker in `data`; of several at one position, the longest."""
    found = [(start, start + len(marker)) for marker in markers if (start := data.find(marker)) >= 0]
    return min(found, key=lambda span: (span[0], -span[1]), default=None)


def _only(logits: Floats, tokens: list[int]) -> Floats:
    """The logits of these tokens; -inf for all others."""
    out = np.full_like(logits, -np.inf)
    out[tokens] = logits[tokens]
    return out
