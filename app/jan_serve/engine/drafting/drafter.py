"""Chooses drafts for the running streams, and learns from their acceptance."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as SequenceOf

from jan_serve.engine.drafting.draft_choice import DraftCandidate, draft_lengths, expected_tokens
from jan_serve.engine.drafting.draft_model import DraftModel
from jan_serve.engine.drafting.draft_record import DraftRecord
from jan_serve.engine.drafting.prompt_lookup import MAX_DRAFT, Guess, TokenHistory, guess
from jan_serve.engine.drafting.trials import Trials
from jan_serve.engine.scheduling.step_costs import LARGEST_DECODE, StepCosts
from jan_serve.engine.sequence import Sequence
from jan_serve.engine.tokens import Tokens
from jan_serve.ipc.messages import DraftMode

# Each drafted token has a row of logits: n_vocab floats.
_MAX_STEP = LARGEST_DECODE
# More streams fill a batch well without drafts, and a look-up costs time.
_MAX_STREAMS = 16
_MAX_EARLIER = 4
_OVERALL_WEIGHT = 0.02

# A look-up costs no time.
_FREE = 1.25
_NOTHING = DraftCandidate(0.0, 0)


class Drafter:
    """Drafts by prompt lookup, or with a draft model or head if there is one and more of it is expected.

    costs: of steps, as the engine learns them. mode: of look-ups; model_mode: of the model. "on" of either drafts in
    every step, from whichever promises more. longest: max tokens of a sequence. max_draft: of a draft.
    """

    def __init__(
        self,
        costs: StepCosts,
        mode: DraftMode,
        model: DraftModel | None = None,
        *,
        longest: int,
        max_draft: int = MAX_DRAFT,
        model_mode: DraftMode = "auto",
    ) -> None:
        self._costs = costs
        self._trials = Trials()
        self._mode = mode
        self._model = model if model_mode != "off" else None
        self._is_forced = mode == "on" or (self._model is not None and model_mode == "on")
        self._longest = longest
        self._max_draft = max_draft
        self._overall = DraftRecord(_OVERALL_WEIGHT)
        self._records: dict[int, DraftRecord] = {}
        self._histories: dict[int, TokenHistory] = {}
        # Of finished sequences, the latest first.
        self._earlier: deque[TokenHistory] = deque(maxlen=_MAX_EARLIER)
        # The match length of each sequence's draft; None: a draft of the model.
        self._sources: dict[int, int | None] = {}
        # The number of tokens, the next one and the match length of guesses that were not drafted.
        self._skipped: dict[int, tuple[int, int, int]] = {}
        self.drafted = self.accepted = 0
        self.drafted_by_model = self.accepted_by_model = 0

    def drafts(
        self, sequences: SequenceOf[Sequence | None], num_tokens: int, room: int
    ) -> list[Tokens | None]:
        """The draft of each sequence, at most `room` tokens in all; None if a draft would not pay off.

        sequences: None for one that can take no draft. num_tokens: of the step without drafts. Blocks for the draft
        model.
        """
        no_drafts: list[Tokens | None] = [None] * len(sequences)
        if self._mode == "off" and self._model is None:
            return no_drafts
        room = min(room, _MAX_STEP - num_tokens)
        if room <= 0 or (len(sequences) > _MAX_STREAMS and not self._is_forced):
            return no_drafts
        choices = [(None, _NOTHING) if sequence is None else self._choose(sequence) for sequence in sequences]
        guesses = [found for found, _ in choices]
        candidates = [candidate for _, candidate in choices]
        lengths = self._lengths(candidates, num_tokens, room)
        for sequence, found, length in zip(sequences, guesses, lengths, strict=True):
            if sequence is not None and found is not None and not length:
                self._skip(sequence, found)
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
        self._observe_skipped(sequence)
        return guess(history, self._earlier)

    def _observe_skipped(self, sequence: Sequence) -> None:
        """Learn whether a guess was right that was not drafted: otherwise wrong ones would count for ever."""
        length, token, match_length = self._skipped.pop(id(sequence), (len(sequence.tokens), 0, 0))
        if length < len(sequence.tokens):
            self._observe(id(sequence), match_length, 1, int(sequence.tokens[length] == token))

    def _choose(self, sequence: Sequence) -> tuple[Guess | None, DraftCandidate]:
        """The source of which more tokens may be expected: a look-up, or None for the model."""
        limit = min(
            self._max_draft,
            self._longest - len(sequence.tokens),
            sequence.max_new - sequence.num_generated - 1,
        )
        record = self._records.get(id(sequence), self._overall)
        by_model = _NOTHING
        if self._model is not None and not sequence.media:  # no model that drafts sees images
            most = min(limit, self._model.max_draft)
            by_model = DraftCandidate(record.share(None), most, self._model.token_s)
        found = self._look_up(sequence)
        if found is None:
            return None, by_model
        looked_up = DraftCandidate(record.share(found.match_length), min(limit, len(found.tokens)))
        if expected_tokens(looked_up) * _FREE >= expected_tokens(by_model):
            return found, looked_up
        self._skip(sequence, found)
        return None, by_model

    def _skip(self, sequence: Sequence, found: Guess) -> None:
        self._skipped[id(sequence)] = len(sequence.tokens), int(found.tokens[0]), found.match_length

    def _lengths(self, candidates: list[DraftCandidate], num_tokens: int, room: int) -> list[int]:
        if self._is_forced:
            each = room // len(candidates)
            return [max(0, min(candidate.limit, each)) for candidate in candidates]
        if not any(candidate.limit > 0 for candidate in candidates):
            return [0] * len(candidates)
        change_s = self._costs.change_s(num_tokens)
        # What drafts must gain if their tokens are free: this step follows a change as well as the two after it.
        least_tokens = 1.5 * num_tokens * change_s / self._costs.decode_s(num_tokens) if change_s else 0.0
        if sum(expected_tokens(candidate) for candidate in candidates) < least_tokens:
            return [0] * len(candidates)
        curve = self._costs.decode_curve(changing_from=num_tokens)
        if curve is None:
            return [0] * len(candidates)
        lengths = draft_lengths(
            candidates, num_tokens, curve, room, noise=self._costs.decode_noise, change_s=change_s
        )
        return self._trials.lengths(lengths, candidates, room, least_tokens)

    def _draft(self, sequence: Sequence, found: Guess | None, length: int) -> Tokens | None:
        self._sources[id(sequence)] = None if found is None else found.match_length
        if found is not None:
            return found.tokens[:length]
        assert self._model is not None
        return self._model.draft(sequence, length)

    def observe_draft(self, sequence: Sequence, drafted: int, accepted: int) -> None:
        """Learn how many tokens of a draft were accepted."""
        key = id(sequence)
        if key in self._sources:
            source = self._sources.pop(key)
            self._observe(key, source, drafted, accepted)
            self.drafted_by_model += drafted if source is None else 0
            self.accepted_by_model += accepted if source is None else 0
        self.drafted += drafted
        self.accepted += accepted

    def _observe(self, key: int, source: int | None, drafted: int, accepted: int) -> None:
        if key not in self._records:
            self._records[key] = DraftRecord(like=self._overall)
        for record in (self._records[key], self._overall):
            record.observe(source, drafted, accepted)

    def remember(self, sequence: Sequence) -> None:
        """Drop a finished sequence, but keep its tokens for look-ups of others."""
        history = self._histories.get(id(sequence))
        if history is not None:
            history.catch_up(sequence.tokens.view())
            self._earlier.appendleft(history)
        self.forget(sequence)

    def forget(self, sequence: Sequence) -> None:
        """Drop a finished or preempted sequence."""
        for by_sequence in (self._records, self._histories, self._sources, self._skipped):
            by_sequence.pop(id(sequence), None)
        if self._model is not None:
            self._model.forget(sequence)
