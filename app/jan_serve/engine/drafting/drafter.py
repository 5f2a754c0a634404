"""The Drafter chooses drafts for the running streams, and learns from their acceptance."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as SequenceOf

import msgspec
import numpy as np

from jan_serve.engine.drafting.draft_lengths import (
    DraftCandidate,
    DraftTrials,
    dealt,
    draft_lengths,
    expected_run,
    expected_tokens,
)
from jan_serve.engine.drafting.draft_model import DraftModel
from jan_serve.engine.drafting.prompt_lookup import MAX_DRAFT, Guess, TokenHistory, guess
from jan_serve.engine.scheduling.step_costs import LARGEST_DECODE, StepCosts
from jan_serve.engine.sequence import Draft, Sequence, SequenceStatus
from jan_serve.engine.tokens import PrefixMark
from jan_serve.ipc.messages import DraftMode

# Classes of guesses: the shortest match, and the acceptance rate assumed before the first measurement.
_CLASSES = ((3, 0.3), (5, 0.5), (9, 0.7), (17, 0.85))
_MODEL_SHARE = 0.7
_SLOWER = 0.5  # weight of the latest token in the slower average, relative to the faster one


class DraftRecord:
    """Acceptance rate of a drafted token after accepted ones, by the length of the match that it follows. The lower of
    two exponential averages, so that a run of luck promises little. A match of None stands for the draft model. weight:
    of the latest token in the faster average. like: the record to start from."""

    def __init__(self, weight: float = 0.15, like: DraftRecord | None = None) -> None:
        self._weight = weight
        first = [*(share for _, share in _CLASSES), _MODEL_SHARE]
        self._shares: list[float] = first if like is None else like._shares.copy()
        self._slower: list[float] = first.copy() if like is None else like._slower.copy()

    def share(self, match_length: int | None) -> float:
        index = _class_of(match_length)
        return min(self._shares[index], self._slower[index])

    def observe(self, match_length: int | None, drafted: int, accepted: int) -> None:
        """Learn that `accepted` of `drafted` tokens were accepted."""
        index = _class_of(match_length)
        for right in [1.0] * accepted + [0.0] * (accepted < drafted):
            self._shares[index] += self._weight * (right - self._shares[index])
            self._slower[index] += _SLOWER * self._weight * (right - self._slower[index])


def _class_of(match_length: int | None) -> int:
    if match_length is None:
        return len(_CLASSES)
    return max(0, sum(match_length >= shortest for shortest, _ in _CLASSES) - 1)


class GraphPadding:
    """Keeps steps at the size of a captured graph, which devices replay many times faster than they begin another, as
    long as drafts have gained more time than that costs. `rows` before a step, `accept` after it."""

    def __init__(self, costs: StepCosts) -> None:
        self._costs = costs
        self._gained_s = 0.0
        self._most_s = 0.0
        self._token_s = 0.0

    def rows(self, num_tokens: int) -> int:
        """The size that the step should keep; `num_tokens`, its size without drafts, if there is none."""
        kept = self._costs.decode.captured_rows
        plain_s = self._costs.decode_s(num_tokens)
        self._most_s = self._costs.decode.change_s(num_tokens)
        self._token_s = plain_s / num_tokens
        # What a new size costs is known after its third step; until then, it is kept if the draft was right at all.
        loss_s = self._costs.decode_s(kept) - plain_s if self._costs.decode.has_settled(kept) else 0.0
        if kept <= num_tokens or loss_s >= self._gained_s:
            self._gained_s = 0.0
            return num_tokens
        self._gained_s -= loss_s
        return kept

    def accept(self, tokens: int) -> None:
        """Accepted ones of the step. More than the return to plain steps costs is never spent on padding."""
        self._gained_s = min(self._most_s, self._gained_s + tokens * self._token_s)


# Each drafted token has a row of logits: n_vocab floats.
_MAX_STEP = LARGEST_DECODE
# More streams fill a batch well without drafts, and a look-up costs time.
_MAX_STREAMS = 16
_MAX_EARLIER = 4
_OVERALL_WEIGHT = 0.02

_MODEL_GAIN = 1.25  # what a draft of the model must promise beside a look-up, which costs no time
_NOTHING = DraftCandidate(0.0, 0)
_NO_TOKENS = np.empty(0, np.int32)


class _Choice(msgspec.Struct, frozen=True):
    """A possible draft, from the look-up that was found or from the model. found: also if the model is chosen."""

    candidate: DraftCandidate
    found: Guess | None
    by_model: bool = False


_NO_CHOICE = _Choice(_NOTHING, None)


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
        self._trials = DraftTrials()
        self._padding = GraphPadding(costs)
        self._mode = mode
        self._model = model if model_mode != "off" else None
        self._is_forced = mode == "on" or (self._model is not None and model_mode == "on")
        self.longest = longest
        self._max_draft = max_draft
        self._overall = DraftRecord(_OVERALL_WEIGHT)
        self._records: dict[int, DraftRecord] = {}
        self._histories: dict[int, TokenHistory] = {}
        # Of finished sequences, the latest first. Only those of one mark are searched: drafts change how fast an answer
        # comes, which would tell one key what another one has read.
        self._earlier: deque[tuple[PrefixMark | None, TokenHistory]] = deque(maxlen=_MAX_EARLIER)
        # The number of tokens, the next one and the match length of guesses that were not drafted.
        self._skipped: dict[int, tuple[int, int, int]] = {}
        self.drafted = self.accepted = 0
        self.drafted_by_model = self.accepted_by_model = 0

    def drafts(
        self, sequences: SequenceOf[Sequence | None], num_tokens: int, room: int
    ) -> list[Draft | None]:
        """The draft of each sequence, at most `room` tokens in all; None if a draft would not pay off.

        sequences: None for one that can take no draft. num_tokens: of the step without drafts. Blocks for the draft
        model.
        """
        no_drafts: list[Draft | None] = [None] * len(sequences)
        if self._mode == "off" and self._model is None:
            return no_drafts
        room = min(room, _MAX_STEP - num_tokens)
        if room <= 0 or (len(sequences) > _MAX_STREAMS and not self._is_forced):
            return no_drafts
        if self._model is not None:
            self._model.begin_step()
        choices = [_NO_CHOICE if sequence is None else self._choose(sequence) for sequence in sequences]
        kept = num_tokens if self._is_forced else min(self._padding.rows(num_tokens), num_tokens + room)
        lengths = self._lengths([choice.candidate for choice in choices], num_tokens, room, kept)
        drafts = [
            None if sequence is None else self._draft(sequence, choice, length)
            for sequence, choice, length in zip(sequences, choices, lengths, strict=True)
        ]
        missing = kept - num_tokens - sum(len(draft.tokens) for draft in drafts if draft is not None)
        return self._padded(sequences, drafts, missing) if missing > 0 else drafts

    def _look_up(self, sequence: Sequence) -> Guess | None:
        if self._mode == "off":
            return None
        history = self._histories.get(id(sequence))
        if history is None:
            history = self._histories[id(sequence)] = TokenHistory()
        history.catch_up(sequence.tokens.view())
        # Whether a guess was right that was not drafted: otherwise wrong ones would count for ever.
        length, token, match_length = self._skipped.pop(id(sequence), (len(sequence.tokens), 0, 0))
        if length < len(sequence.tokens):
            self._observe(sequence, match_length, 1, int(sequence.tokens[length] == token))
        return guess(history, (other for mark, other in self._earlier if mark == sequence.mark))

    def _choose(self, sequence: Sequence) -> _Choice:
        """The source of which more tokens may be expected."""
        limit = min(self._most(sequence), sequence.max_new - sequence.num_generated - 1)
        record = self._records.get(id(sequence), self._overall)
        by_model = _NOTHING
        if self._model is not None and not sequence.media:  # no model that drafts sees images
            most = min(limit, self._model.max_draft)
            by_model = DraftCandidate(record.share(None), most, self._model.token_s)
        found = self._look_up(sequence)
        if found is None:
            return _Choice(by_model, None, by_model=True)
        looked_up = DraftCandidate(record.share(found.match_length), min(limit, len(found.tokens)))
        if expected_tokens(looked_up) * _MODEL_GAIN >= expected_tokens(by_model):
            return _Choice(looked_up, found)
        return _Choice(by_model, found, by_model=True)

    def _most(self, sequence: Sequence) -> int:
        """Tokens that a draft may have, whether they are useful or not."""
        return min(self._max_draft, self.longest - len(sequence.tokens))

    def _lengths(self, candidates: list[DraftCandidate], num_tokens: int, room: int, kept: int) -> list[int]:
        """kept: rows that the step has in any case."""
        if self._is_forced:
            return dealt([candidate.limit for candidate in candidates], room)
        if not any(candidate.limit > 0 for candidate in candidates):
            return [0] * len(candidates)
        is_kept = kept > num_tokens
        # Where the first token is right, the next steps keep the size: there is no way back yet.
        way_back = 0.0 if is_kept else 1.0 - max(candidate.share for candidate in candidates)
        change_s = way_back * self._costs.decode.way_back_s(num_tokens)
        run = max(expected_run(candidate) for candidate in candidates)
        curve = self._costs.decode.draft_curve(
            self._costs.prefill_token_s, num_tokens, kept if is_kept else 0, run
        )
        room = min(room, self._costs.decode.reach - num_tokens)
        if curve is None or room <= 0:
            return [0] * len(candidates)
        lengths = draft_lengths(
            candidates, num_tokens, curve, room, noise=self._costs.decode.noise, change_s=change_s
        )
        if is_kept:
            return lengths
        return self._trials.lengths(lengths, candidates, room, self._costs.decode.least_gain(num_tokens))

    def _draft(self, sequence: Sequence, choice: _Choice, length: int) -> Draft | None:
        found = choice.found
        if length and choice.by_model:
            assert self._model is not None
            tokens = self._model.draft(sequence, length)
            if tokens is not None:
                self._skip(sequence, found)
                return Draft(tokens, len(tokens))
        if found is None:
            return None
        if not length:
            self._skip(sequence, found)
            return None
        tokens = found.tokens[:length]
        return Draft(tokens, len(tokens), found.match_length)

    def _skip(self, sequence: Sequence, found: Guess | None) -> None:
        if found is not None:
            self._skipped[id(sequence)] = len(sequence.tokens), int(found.tokens[0]), found.match_length

    def _padded(
        self, sequences: SequenceOf[Sequence | None], drafts: list[Draft | None], missing: int
    ) -> list[Draft | None]:
        """The drafts with `missing` more tokens. Their values do not matter."""
        padded = list(drafts)
        for index, (sequence, draft) in enumerate(zip(sequences, drafts, strict=True)):
            if sequence is None:
                continue
            tokens = _NO_TOKENS if draft is None else draft.tokens
            count = min(missing, self._most(sequence) - len(tokens))
            if count > 0:
                missing -= count
                filled = np.concatenate((tokens, np.full(count, sequence.tokens[-1], np.int32)))
                padded[index] = (
                    Draft(filled, 0) if draft is None else msgspec.structs.replace(draft, tokens=filled)
                )
        return padded

    def observe_draft(self, sequence: Sequence, draft: Draft, accepted: int) -> None:
        self._padding.accept(accepted)
        if not draft.guessed:
            return
        work, guessed, right = sequence.state.work, draft.guessed, min(accepted, draft.guessed)
        self._observe(sequence, draft.match_length, guessed, right)
        for counted in (self, work):
            counted.drafted += guessed
            counted.accepted += right
        if draft.match_length is None:
            self.drafted_by_model += guessed
            self.accepted_by_model += right

    def _observe(self, sequence: Sequence, match_length: int | None, drafted: int, accepted: int) -> None:
        records = [self._overall]
        if sequence.status is not SequenceStatus.FINISHED:  # else it is forgotten already
            if id(sequence) not in self._records:
                self._records[id(sequence)] = DraftRecord(like=self._overall)
            records.append(self._records[id(sequence)])
        for record in records:
            record.observe(match_length, drafted, accepted)

    def remember(self, sequence: Sequence) -> None:
        """Drop a finished sequence, but keep its tokens for look-ups of others."""
        history = self._histories.get(id(sequence))
        if history is not None:
            history.catch_up(sequence.tokens.view())
            self._earlier.appendleft((sequence.mark, history))
        self.forget(sequence)

    def forget(self, sequence: Sequence) -> None:
        """Drop a finished or preempted sequence."""
        for by_sequence in (self._records, self._histories, self._skipped):
            by_sequence.pop(id(sequence), None)
        if self._model is not None:
            self._model.forget(sequence)
