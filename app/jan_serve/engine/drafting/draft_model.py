"""Speculative decoding (Leviathan et al. 2023) with a draft model, or with the model's own head (MTP)."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from statistics import median_low
from typing import Final

import numpy as np

from jan_serve.engine.drafting.prompt_lookup import MAX_DRAFT
from jan_serve.engine.llama.context import DECODE_OK, Batch, Floats, LlamaContext
from jan_serve.engine.llama.vocab import Vocab
from jan_serve.engine.sequence import Sequence
from jan_serve.engine.tokens import TokenBuffer, Tokens, common_prefix
from jan_serve.errors import SettingsError
from jan_serve.placement.workload import HEAD_DRAFT

# llama.cpp's common_speculative_are_compatible: special tokens may differ in text, and vocabularies in padding.
_MAX_VOCAB_DIFFERENCE = 128
_FIRST_COMPARED_TOKEN = 5
_MAX_PREFILL: Final = 512
"""Tokens that the draft model reads at most, of all sequences, while a step of the large model waits."""
_MIN_PROBABILITY: Final = 0.5  # a less probable token ends a draft
_SAMPLES: Final = 5
_YIELD_WEIGHT: Final = 0.2
_MIN_YIELD: Final = 1 / 32
"""Tokens a pass: with fewer, it would take too many good drafts until drafts seem to pay again."""


def check_vocabularies(target: Vocab, draft: Vocab, name: str) -> None:
    """Raises SettingsError unless both models use the same tokens for the same text."""
    difference = abs(target.n_tokens - draft.n_tokens)
    shared = min(target.n_tokens, draft.n_tokens)
    if difference > _MAX_VOCAB_DIFFERENCE:
        reason = f"it has {draft.n_tokens} tokens, and the model {target.n_tokens}"
    else:
        ours, theirs = target.pieces(), draft.pieces()
        differing = next((i for i in range(_FIRST_COMPARED_TOKEN, shared) if ours[i] != theirs[i]), None)
        if differing is None:
            return
        reason = f"token {differing} is {theirs[differing]!r} there, and {ours[differing]!r} in the model"
    raise SettingsError(
        f"draft_model: {name} has another vocabulary ({reason}); take a smaller model of the same family"
    )


class DraftModel:
    """Drafts tokens. Each drafted sequence has cells in this context too. For the engine thread."""

    max_draft = MAX_DRAFT

    def __init__(
        self,
        context: LlamaContext,
        n_sequences: int,
        n_tokens: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """context: has at least the cells of the large model's context, and `n_sequences` sequence ids.

        n_tokens: of the large model's vocabulary, which may be the smaller one.
        """
        self._context = context
        self._n_tokens = n_tokens
        self._batch = Batch(min(context.n_batch, _MAX_PREFILL))
        self._free_ids = list(range(n_sequences))
        self._ids: dict[int, int] = {}
        self._held: dict[int, TokenBuffer] = {}
        # Sequences without room: do not prefill them again and again.
        self._given_up: set[int] = set()
        self._clock = clock
        self._room = _MAX_PREFILL
        self._pass_s: deque[float] = deque(maxlen=_SAMPLES)
        self._is_warm = False  # the first pass loads kernels
        self._yield = 1.0
        """Drafted tokens a pass, on average. Passes that end in an improbable token yield nothing."""

    @property
    def token_s(self) -> float:
        """Seconds per drafted token; 0 before the first measurement."""
        return median_low(self._pass_s) / self._yield if self._pass_s else 0.0

    def resized(self, n_ctx: int, trunk: LlamaContext) -> LlamaContext:
        """A context of other length, for `become`. trunk: the large model's, of that length. Raises as LlamaContext."""
        return self._context.resized(n_ctx)

    def become(self, context: LlamaContext) -> None:
        """Draft in this context from now on. No sequence may have cells in the one before."""
        self._context.become(context)

    def begin_step(self) -> None:
        """Prepare for the drafts of a step."""
        self._room = _MAX_PREFILL

    def draft(self, sequence: Sequence, length: int) -> Tokens | None:
        """The most likely continuation, up to `length` tokens. Blocks for a pass of the draft model per token. None
        while it has not prefilled the whole sequence; each call continues. Shorter if a token is improbable."""
        start = self._clock()
        is_first = len(sequence.tokens) - self._num_read(sequence) > self.max_draft + 1
        logits = self._prefill(sequence)
        if logits is None:
            return None
        passes = 1
        position = len(sequence.tokens)
        drafted: list[int] = []
        while len(drafted) < length:
            token = int(logits.argmax())
            if token >= self._n_tokens or _probability(logits, token) < _MIN_PROBABILITY:
                break
            drafted.append(token)
            if len(drafted) == length:
                break
            logits = self._step(sequence, token, position)
            if logits is None:
                self._give_up(sequence)
                return None
            position += 1
            passes += 1
        if not is_first:  # else it read a prompt
            if self._is_warm:
                self._pass_s.append((self._clock() - start) / passes)
            self._is_warm = True
            change = len(drafted) / passes - self._yield
            self._yield = max(_MIN_YIELD, self._yield + _YIELD_WEIGHT * change)
        return np.array(drafted, np.int32) if drafted else None

    def forget(self, sequence: Sequence) -> None:
        """Free the cells of a sequence."""
        self._given_up.discard(id(sequence))
        self._drop(sequence)

    def _num_read(self, sequence: Sequence) -> int:
        held = self._held.get(id(sequence))
        return 0 if held is None else len(held)

    def _sequence_id(self, sequence: Sequence) -> int | None:
        """None if it has none, and there is none left or no room for it."""
        key = id(sequence)
        if key not in self._ids:
            if key in self._given_up or not self._free_ids:
                return None
            self._ids[key] = self._free_ids.pop()
        return self._ids[key]

    def _give_up(self, sequence: Sequence) -> None:
        self._drop(sequence)
        self._given_up.add(id(sequence))

    def _drop(self, sequence: Sequence) -> None:
        self._held.pop(id(sequence), None)
        seq_id = self._ids.pop(id(sequence), None)
        if seq_id is not None:
            self._context.remove(seq_id)
            self._free_ids.append(seq_id)

    def _may_read(self, num_tokens: int) -> bool:
        """Whether this step has time for it. What was written since the last draft always has."""
        return self._room > 0 or num_tokens <= self.max_draft + 1

    def _prefill(self, sequence: Sequence) -> Floats | None:
        """Prefill up to the sequence's newest token and return its logits; None if it takes another step."""
        key = id(sequence)
        seq_id = self._sequence_id(sequence)
        if seq_id is None:
            return None
        held = self._held.get(key, TokenBuffer())
        tokens = sequence.tokens.view()
        # Always compute the newest token: the draft starts with its logits.
        same = min(common_prefix(tokens, held.view()), len(tokens) - 1)
        if not self._may_read(len(tokens) - same):
            return None
        if same < len(held):
            if not self._context.truncate(seq_id, same):
                self._give_up(sequence)
                return None
            held = TokenBuffer(held.view(0, same))
        part = tokens[same : same + self._batch.capacity]
        self._room -= len(part)
        self._batch.clear()
        index = self._batch.add(part, same, seq_id, outputs="last")
        if self._context.decode(self._batch) != DECODE_OK:
            self._give_up(sequence)
            return None
        for token in part.tolist():
            held.append(token)
        self._held[key] = held
        return self._context.logits(index) if len(held) == len(tokens) else None

    def _step(self, sequence: Sequence, token: int, position: int) -> Floats | None:
        """The logits after one more token at this position; None without room."""
        self._batch.clear()
        index = self._batch.add_one(token, position, self._ids[id(sequence)])
        if self._context.decode(self._batch) != DECODE_OK:
            return None
        self._held[id(sequence)].append(token)
        return self._context.logits(index)


def _probability(logits: Floats, token: int) -> float:
    return float(1.0 / np.exp(logits - logits[token], dtype=np.float32).sum())


WINDOW: Final = 256  # tokens back that are kept, at least


class HiddenRows:
    """Rows of positions `start` to `end`-1, the oldest of which are dropped."""

    def __init__(self, width: int) -> None:
        self.start: int = 0
        self.end: int = 0
        self._rows: Floats = np.empty((2 * WINDOW, width), np.float32)

    def append(self, position: int, rows: Floats) -> None:
        """Copy the rows from `position` on. Rows that end before it are of no use any more."""
        if position != self.end:
            self.start = self.end = position
        if len(rows) >= WINDOW:
            self.start = self.end = position + len(rows) - WINDOW
            rows = rows[-WINDOW:]
        held = self.end - self.start
        if held + len(rows) > len(self._rows):
            keep = WINDOW - len(rows)
            self._rows[:keep] = self._rows[held - keep : held].copy()
            self.start, held = self.end - keep, keep
        self._rows[held : held + len(rows)] = rows
        self.end += len(rows)

    def view(self, first: int, end: int) -> Floats:
        """Rows of positions first … end-1, all of which must be held."""
        return self._rows[first - self.start : end - self.start]


class NextTokenHead(DraftModel):
    """`observe` after each batch of the model, then `draft`. For the engine thread."""

    max_draft = HEAD_DRAFT

    def __init__(
        self,
        context: LlamaContext,
        trunk: LlamaContext,
        n_sequences: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """context: of the head, with at least the cells of `trunk`, the model's own."""
        super().__init__(context, n_sequences, trunk.n_vocab, clock)
        self._trunk = trunk
        self._width = context.model.n_embd
        self._batch = Batch(context.n_batch, self._width)
        self._hidden: dict[int, HiddenRows] = {}
        self._read: dict[int, int] = {}
        """Tokens of a sequence up to which the head has read the model's hidden states."""
        self._last: Floats = np.empty((1, self._width), np.float32)
        """The head's own hidden state of the token that it read last."""
        self._output_hidden()

    def _output_hidden(self) -> None:
        self._trunk.output_hidden()
        self._context.output_hidden()

    def resized(self, n_ctx: int, trunk: LlamaContext) -> LlamaContext:
        return self._context.resized(n_ctx, head_of=trunk)

    def become(self, context: LlamaContext) -> None:
        super().become(context)
        self._output_hidden()

    def observe(self, sequence: Sequence, index: int, count: int) -> None:
        """Keep the hidden states of the last `count` computed tokens, which are in the batch from `index` on."""
        if sequence.media:
            return
        key = id(sequence)
        if key not in self._hidden:
            self._hidden[key] = HiddenRows(self._width)
        start = sequence.num_computed - count
        self._hidden[key].append(start, self._trunk.hidden(index, index + count))

    def forget(self, sequence: Sequence) -> None:
        self._hidden.pop(id(sequence), None)
        super().forget(sequence)

    def _num_read(self, sequence: Sequence) -> int:
        return self._read.get(id(sequence), 0)

    def _drop(self, sequence: Sequence) -> None:
        self._read.pop(id(sequence), None)
        super()._drop(sequence)

    def _prefill(self, sequence: Sequence) -> Floats | None:
        """Read what is new, with the model's hidden states. The token at p needs that of p-1."""
        key, length = id(sequence), len(sequence.tokens)
        rows = self._hidden.get(key)
        if rows is None or rows.end != length - 1 or rows.start == rows.end:
            return None
        seq_id = self._sequence_id(sequence)
        if seq_id is None:
            return None
        # Always read the newest token: the draft starts with its logits.
        start = min(self._read.get(key, 0), length - 1)
        if not self._may_read(length - max(start, rows.start)):
            return None
        if start <= rows.start:
            self._context.remove(seq_id)
            start = rows.start + 1
        # Its own hidden states served for the draft only.
        elif not self._context.truncate(seq_id, start):
            self._give_up(sequence)
            return None
        index = 0
        while start < length:
            end = min(length, start + self._batch.capacity)
            self._batch.clear()
            index = self._batch.add(sequence.tokens.view(start, end), start, seq_id, outputs="last")
            self._batch.set_hidden(rows.view(start - 1, end - 1))
            if self._context.decode(self._batch) != DECODE_OK:
                self._give_up(sequence)
                return None
            self._room -= end - start
            start = self._read[key] = end
        self._last = self._context.hidden(index, index + 1).copy()
        return self._context.logits(index)

    def _step(self, sequence: Sequence, token: int, position: int) -> Floats | None:
        self._batch.clear()
        index = self._batch.add_one(token, position, self._ids[id(sequence)])
        self._batch.set_hidden(self._last)
        if self._context.decode(self._batch) != DECODE_OK:
            return None
        self._last = self._context.hidden(index, index + 1).copy()
        return self._context.logits(index)
