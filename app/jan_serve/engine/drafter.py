"""Chooses drafts for the running streams of an engine, and learns from what becomes of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from jan_serve.engine.draft_model import DraftModel
from jan_serve.engine.pacing import Pacer
from jan_serve.engine.prompt_lookup import MAX_DRAFT, DraftRecord, StepCost, guess, worthwhile
from jan_serve.engine.sequence import Sequence
from jan_serve.engine.tokens import Tokens

# Beside more streams than these a batch is well used without drafts, and looking for them costs time.
_MAX_STREAMS = 8
_BEST_SHARE = 0.98

LookupMode = Literal["auto", "on", "off"]
"""`auto`: where the measured cost of a step says that drafts pay."""


class Drafter:
    """Drafts by prompt lookup, and where that finds nothing by a draft model if there is one.

    `pacer` knows what a token of a prefill costs.
    """

    def __init__(self, pacer: Pacer, mode: LookupMode, model: DraftModel | None = None) -> None:
        self._pacer = pacer
        self._mode = mode
        self._model = model
        self._cost = StepCost()
        self._records: dict[int, DraftRecord] = {}
        # The agreement that the draft of a sequence rests on; None for one of the model.
        self._sources: dict[int, int | None] = {}
        self.drafted = self.accepted = 0

    def draft(
        self, sequence: Sequence, num_streams: int, room: int, earlier: Iterable[Tokens]
    ) -> Tokens | None:
        """Tokens to compute behind the newest one of a decoding sequence, `room` at most; None where that pays not.

        earlier: what other sequences said, the latest first. Blocks for the draft model.
        """
        room = min(room, sequence.max_new - sequence.num_generated - 1)
        if room <= 0 or not self.may_pay(num_streams):
            return None
        record = self._records.setdefault(id(sequence), DraftRecord())
        tokens = self._looked_up(sequence, record, num_streams, room, earlier)
        if tokens is None and self._model is not None:
            length = self._worthwhile(record.share(None), num_streams, self._model.token_s)
            tokens = self._model.draft(sequence, min(length, room)) if length else None
            self._sources[id(sequence)] = None
        return tokens

    def _looked_up(
        self, sequence: Sequence, record: DraftRecord, num_streams: int, room: int, earlier: Iterable[Tokens]
    ) -> Tokens | None:
        found = guess(sequence.tokens.view(), earlier) if self._mode != "off" else None
        if found is None:
            return None
        length = self._worthwhile(record.share(found.agreement), num_streams)
        if not length:
            return None
        self._sources[id(sequence)] = found.agreement
        return found.tokens[: min(length, room)]

    def may_pay(self, num_streams: int) -> bool:
        """Whether the best draft would pay beside so many streams; if not, one need not look for any."""
        if self._mode == "off" and self._model is None:
            return False
        return self._worthwhile(_BEST_SHARE, num_streams) > 0

    def _worthwhile(self, share: float, num_streams: int, draft_s: float = 0.0) -> int:
        """Tokens that a draft may have at most, if such a share of them is right and each took `draft_s` to guess."""
        if self._mode == "on":
            return MAX_DRAFT
        if num_streams > _MAX_STREAMS:
            return 0
        token_s = self._cost.token(self._pacer.prefill_token_s)
        return worthwhile(share, token_s + draft_s, self._cost.step(num_streams, token_s), num_streams)

    def observe_step(self, num_tokens: int, seconds: float) -> None:
        """A batch of only newest tokens and drafts took so long."""
        self._cost.observe(num_tokens, seconds)

    def observe_draft(self, sequence: Sequence, drafted: int, accepted: int) -> None:
        """So many tokens of a draft were what the sequence went on with."""
        record = self._records.get(id(sequence))
        if record is not None and id(sequence) in self._sources:
            record.observe(self._sources.pop(id(sequence)), drafted, accepted)
        self.drafted += drafted
        self.accepted += accepted

    def forget(self, sequence: Sequence) -> None:
        """The sequence ended or was put back."""
        self._records.pop(id(sequence), None)
        self._sources.pop(id(sequence), None)
        if self._model is not None:
            self._model.forget(sequence)
