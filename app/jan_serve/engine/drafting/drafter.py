"""Chooses drafts for the running streams of an engine, and learns from what becomes of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as SequenceOf
from typing import Literal

from jan_serve.engine.drafting.draft_choice import DraftCandidate, draft_lengths
from jan_serve.engine.drafting.draft_model import DraftModel
from jan_serve.engine.drafting.draft_record import DraftRecord
from jan_serve.engine.drafting.prompt_lookup import MAX_DRAFT, Guess, TokenHistory, guess
from jan_serve.engine.drafting.step_costs import StepCosts
from jan_serve.engine.scheduling.prefill_chunks import Pacer
from jan_serve.engine.sequence import Sequence
from jan_serve.engine.tokens import Tokens

# Each drafted token has a row of logits: n_vocab floats.
_MAX_STEP = 64
# Beside more streams than these a batch is well used without drafts, and looking for them costs time.
_MAX_STREAMS = 16
_EARLIER = 4
_OVERALL_WEIGHT = 0.02

LookupMode = Literal["auto", "on", "off"]
"""`auto`: where the measured time of steps says that drafts pay."""


class Drafter:
    """Drafts by prompt lookup, and where that finds nothing by a draft model if there is one.

    `pacer` knows what a token of a prefill costs. longest: tokens that a sequence can have.
    """

    def __init__(
        self, pacer: Pacer, mode: LookupMode, model: DraftModel | None = None, *, longest: int
    ) -> None:
        self._pacer = pacer
        self._mode = mode
        self._model = model
        self._longest = longest
        self._costs = StepCosts(_MAX_STEP)
        self._overall = DraftRecord(_OVERALL_WEIGHT)
        self._records: dict[int, DraftRecord] = {}
        self._histories: dict[int, TokenHistory] = {}
        # What earlier sequences said, the latest first.
        self._earlier: deque[TokenHistory] = deque(maxlen=_EARLIER)
        # The agreement that the draft of a sequence rests on; None for one of the model.
        self._sources: dict[int, int | None] = {}
        self.drafted = self.accepted = 0

    def drafts(
        self, sequences: SequenceOf[Sequence | None], num_tokens: int, room: int
    ) -> list[Tokens | None]:
        """For each sequence the tokens to compute behind its newest one, `room` in all; None where that pays not.

        sequences: None for one that can take no draft. num_tokens: of the step without drafts. Blocks for the draft
        model.
        """
        nothing: list[Tokens | None] = [None] * len(sequences)
        if self._mode == "off" and self._model is None:
            return nothing
        room = min(room, _MAX_STEP - num_tokens)
        if room <= 0 or (len(sequences) > _MAX_STREAMS and self._mode != "on"):
            return nothing
        guesses = [None if sequence is None else self._look_up(sequence) for sequence in sequences]
        candidates = [
            DraftCandidate(0.0, 0) if sequence is None else self._candidate(sequence, found)
            for sequence, found in zip(sequences, guesses, strict=True)
        ]
        lengths = self._lengths(candidates, num_tokens, room)
        return [
            self._draft(sequence, found, length) if sequence is not None and length else None
            for sequence, found, length in zip(sequences, guesses, lengths, strict=True)
        ]

    def _look_up(self, sequence: Sequence) -> Guess | None:
        if self._mode == "off":
            return None
        history = self._histories.get(id(sequence))
        if history is None:
            history = self._histories[id(sequence)] = TokenHistory()
        history.catch_up(sequence.tokens.view())
        return guess(history, self._earlier)

    def _candidate(self, sequence: Sequence, found: Guess | None) -> DraftCandidate:
        limit = min(
            MAX_DRAFT,
            self._longest - len(sequence.tokens),
            sequence.max_new - sequence.num_generated - 1,
        )
        record = self._records.get(id(sequence), self._overall)
        if found is not None:
            return DraftCandidate(record.share(found.agreement), min(limit, len(found.tokens)))
        if self._model is None:
            return DraftCandidate(0.0, 0)
        return DraftCandidate(record.share(None), limit, self._model.token_s)

    def _lengths(self, candidates: list[DraftCandidate], num_tokens: int, room: int) -> list[int]:
        if self._mode == "on":
            each = room // max(1, len(candidates))
            return [max(0, min(candidate.limit, each)) for candidate in candidates]
        if not any(candidate.limit > 0 for candidate in candidates):
            return [0] * len(candidates)
        curve = self._costs.curve(self._pacer.prefill_token_s)
        if curve is None:
            return [0] * len(candidates)
        return draft_lengths(candidates, num_tokens, curve, room)

    def _draft(self, sequence: Sequence, found: Guess | None, length: int) -> Tokens | None:
        self._sources[id(sequence)] = None if found is None else found.agreement
        if found is not None:
            return found.tokens[:length]
        assert self._model is not None
        return self._model.draft(sequence, length)

    def observe_step(self, num_tokens: int, seconds: float) -> None:
        """A step of only newest tokens and drafts took so long, sampling included."""
        if self._mode == "auto" or self._model is not None:
            self._costs.observe(num_tokens, seconds, self._pacer.prefill_token_s)

    def observe_draft(self, sequence: Sequence, drafted: int, accepted: int) -> None:
        """So many tokens of a draft were what the sequence went on with."""
        key = id(sequence)
        if key in self._sources:
            source = self._sources.pop(key)
            if key not in self._records:
                self._records[key] = DraftRecord(like=self._overall)
            for record in (self._records[key], self._overall):
                record.observe(source, drafted, accepted)
        self.drafted += drafted
        self.accepted += accepted

    def remember(self, sequence: Sequence) -> None:
        """The sequence has ended: what it said may be said again."""
        history = self._histories.get(id(sequence))
        if history is not None:
            history.catch_up(sequence.tokens.view())
            self._earlier.appendleft(history)
        self.forget(sequence)

    def forget(self, sequence: Sequence) -> None:
        """The sequence ended or was put back."""
        for known in (self._records, self._histories, self._sources):
            known.pop(id(sequence), None)
        if self._model is not None:
            self._model.forget(sequence)
