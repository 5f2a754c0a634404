"""The engine: continuous batching over one llama.cpp context. Owned by one thread; it starts none and does no I/O."""

from __future__ import annotations

import bisect
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from jan_serve.core.events import TokenInfo
from jan_serve.core.sequence_state import SequenceState
from jan_serve.engine.adapters import Adapters
from jan_serve.engine.cells import CellCounter
from jan_serve.engine.draft_model import DraftModel
from jan_serve.engine.drafter import Drafter, LookupMode
from jan_serve.engine.llama.context import DECODE_ABORTED, DECODE_NO_CELLS, DECODE_OK, Batch, LlamaContext
from jan_serve.engine.pacing import Pacer
from jan_serve.engine.phase import PhaseClock
from jan_serve.engine.prefix_cache import PrefixCache, PrefixMatch
from jan_serve.engine.sampler import Floats, Sampled, score
from jan_serve.engine.scheduler import Admission, PlanItem, Scheduler
from jan_serve.engine.sequence import RequestState, Sequence, Status
from jan_serve.engine.state_cache import StateCache
from jan_serve.engine.state_restorer import StateRestorer
from jan_serve.engine.state_shelf import StateShelf, state_bytes
from jan_serve.engine.tokens import Tokens, ends_of_turns
from jan_serve.errors import EngineFailure, JanServeError
from jan_serve.ipc.messages import (
    STEP_SIZES,
    Chunk,
    EngineEvent,
    EngineStats,
    Failed,
    GenerateRequest,
    PromptScored,
    RequestCompleted,
    SequenceFinished,
    StateKept,
)

_LOOKUP_SEQUENCES = 4
"""Earlier answers that drafts are looked up in."""


class Engine:
    """Runs sequences: `add` and `abort` between steps, `step` as long as `has_work`.

    context: its cells are this engine's alone. n_ctx: the longest sequence (llama.cpp may have padded the context).
    """

    def __init__(
        self,
        context: LlamaContext,
        *,
        n_ctx: int,
        parallel: int,
        cache_sequences: int,
        step_target_s: float,
        phase: PhaseClock,
        prompt_lookup: LookupMode = "off",
        draft_model: DraftModel | None = None,
        shelf: StateShelf | None = None,
        states: StateCache | None = None,
        adapters: Adapters | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._context = context
        self._shelf = shelf
        self._adapters = adapters
        self._vocab = context.model.vocab
        self._cells = CellCounter(min(n_ctx, context.n_ctx))
        self._cache = PrefixCache(whole_only=context.model.is_recurrent)
        self._scheduler = Scheduler(parallel, self._cells, self._cache)
        self._pacer = Pacer(step_target_s, context.n_batch)
        # A memory that cannot be cut cannot give a wrong draft back.
        recurrent = context.model.is_recurrent
        self._drafter = Drafter(
            self._pacer, "off" if recurrent else prompt_lookup, None if recurrent else draft_model
        )
        self._batch = Batch(context.n_batch)
        self._free_ids = list(range(parallel + cache_sequences - 1, -1, -1))
        self._phase = phase
        self._clock = clock
        self._states = StateRestorer(states or StateCache(0), context, self._cells, self._cache)
        self._events: list[EngineEvent] = []
        self._prefilling: frozenset[int] = frozenset()
        self._abort_lock = threading.Lock()
        self._step_sizes = [0] * (len(STEP_SIZES) + 1)
        self._steps = self._prompt_tokens = self._computed = self._cached = self._generated = self._forced = 0

    @property
    def has_work(self) -> bool:
        """Whether any sequence waits or runs."""
        return self._scheduler.has_work

    def stats(self) -> EngineStats:
        """Counters and gauges; may be read from another thread (each value is consistent by itself)."""
        return EngineStats(
            steps_total=self._steps,
            prompt_tokens_total=self._prompt_tokens,
            computed_tokens_total=self._computed,
            step_sizes=tuple(self._step_sizes),
            cached_tokens_total=self._cached,
            generated_tokens_total=self._generated,
            forced_tokens_total=self._forced,
            running=len(self._scheduler.running),
            waiting=len(self._scheduler.waiting),
            cells_used=self._cells.used,
            cells_total=self._cells.capacity,
            cached_sequences=len(self._cache),
            saved_total=self._states.saved,
            restored_total=self._states.restored,
            drafted_total=self._drafter.drafted,
            accepted_total=self._drafter.accepted,
            cache_ram_bytes=self._states.ram_used,
        )

    def add(self, sequences: Iterable[Sequence]) -> None:
        """Queue the sequences of a request."""
        for sequence in sequences:
            if self._cache.whole_only:
                sequence.checkpoints = ends_of_turns(sequence.tokens.view(), self._vocab.eog_ids)
            if sequence.index == 0:
                self._prompt_tokens += sequence.state.prompt_length
            self._scheduler.waiting.append(sequence)

    def abort(self, request_id: int) -> None:
        """Drop a request: its cells are free (or cached) at once, and no event of it follows."""
        for sequence in [s for s in self._scheduler.waiting if s.request.id == request_id]:
            self._scheduler.waiting.remove(sequence)
            self._states.forget(sequence)
            sequence.status = Status.FINISHED
        for sequence in [s for s in self._scheduler.running if s.request.id == request_id]:
            self._retire(sequence)

    def interrupt_prefill(self, request_id: int) -> None:
        """Stop the decode that runs now if it prefills this request. Thread-safe; `abort` must follow."""
        with self._abort_lock:
            if request_id in self._prefilling:
                self._context.abort_flag.set()

    def save(self, patience_s: float) -> None:
        """Keep what is cached for the next worker of this model. Blocks for the disk, and so long at most."""
        for seq_id in self._cache.seq_ids:
            self._evict(seq_id)
        self._states.flush(patience_s)

    def step(self) -> list[EngineEvent]:
        """Admit, compute one batch, sample. Blocks for the batch. Returns what happened, in order."""
        self._admit()
        turn = self._scheduler.next_turn(self._clock())
        plan = self._scheduler.plan(self._batch.capacity, self._prefill_budget(turn), turn)
        plan = self._with_drafts(self._make_room(plan))
        if plan:
            indices = self._fill(plan)
            started = self._clock()
            code = self._decode(plan)
            if code == DECODE_OK:
                self._observe(plan, self._clock() - started)
                self._commit(plan, indices)
            else:
                self._recover(plan, code)
        self._phase.enter("idle")
        events, self._events = self._events, []
        return events

    def _prefill_budget(self, turn: list[Sequence]) -> int:
        prefilling = sum(s.is_prefilling for s in turn)
        return self._pacer.prefill_tokens(len(turn) - prefilling, prefilling)

    # Admission and cells

    def _admit(self) -> None:
        while (admission := self._scheduler.next_admission(self._states.is_fetching)) is not None:
            self._start(admission)
        if not self._scheduler.running:
            self._states.wait()

    def _start(self, admission: Admission) -> None:
        sequence = admission.sequence
        prefix = admission.prefix if sequence.resumed is None else None
        if prefix is not None:
            self._cache.touch(prefix.seq_id)
        sequence.seq_id = self._take_id(keep=prefix.seq_id if prefix is not None else None)
        sequence.prefill_end = len(sequence.tokens)
        restored = self._states.restore(sequence, prefix.length if prefix else 0, self._free_cells)
        self._cells.extend(sequence.seq_id, restored)
        if not restored and prefix is not None and self._holds(prefix.seq_id):
            restored = self._share(prefix, sequence.seq_id)
        sequence.num_computed = sequence.num_cached = restored
        self._cached += restored
        state = sequence.state
        if state.started is None:
            state.started = self._clock()
        if state.cached_tokens is None:
            state.cached_tokens = min(sequence.num_cached, state.prompt_length)
        sequence.status = Status.RUNNING
        self._scheduler.waiting.remove(sequence)
        self._scheduler.running.append(sequence)
        if sequence.resumed is not None:
            self._resume(sequence, sequence.resumed)

    def _holds(self, seq_id: int) -> bool:
        """Whether a sequence has not been evicted in the meantime."""
        return seq_id in self._cache or any(s.seq_id == seq_id for s in self._scheduler.running)

    def _share(self, prefix: PrefixMatch, target: int) -> int:
        """Give a sequence the first cells of another; how many."""
        if self._cache.whole_only:
            self._context.copy_all(prefix.seq_id, target)
        else:
            self._context.copy_prefix(prefix.seq_id, target, prefix.length)
        self._cells.share(prefix.seq_id, target, prefix.length)
        return prefix.length

    def _resume(self, sequence: Sequence, state: SequenceState) -> None:
        """Put in place what another server computed, and go on behind it. Where it has no room, it is computed here."""
        sequence.resumed = None
        length = len(state.tokens)
        if sequence.num_computed:  # from the caches of this worker, which need not be as long
            self._context.remove(sequence.seq_id)
            self._cells.remove(sequence.seq_id)
            sequence.num_computed = sequence.num_cached = 0
        while self._cells.free < length and (oldest := self._cache.least_recent()) is not None:
            self._evict(oldest)
        if not self._context.restore_sequence(sequence.seq_id, np.frombuffer(state.memory, np.uint8)):
            return
        self._cells.extend(sequence.seq_id, length)
        self._cached += length
        sequence.num_computed = sequence.num_cached = sequence.state.cached_tokens = length
        self._advance(sequence, np.frombuffer(state.logits, "<f4").copy())

    def _take_id(self, keep: int | None) -> int:
        """A sequence id that holds nothing; evicts a cached sequence if all are in use. `keep` is not evicted."""
        if not self._free_ids:
            victims = [seq_id for seq_id in self._cache.seq_ids if seq_id != keep]
            self._evict(victims[0])
        return self._free_ids.pop()

    def _evict(self, seq_id: int) -> None:
        self._states.save_evicted(seq_id)
        self._cache.remove(seq_id)
        self._release(seq_id)

    def _free_cells(self, count: int) -> bool:
        """Evict cached sequences until so many cells are free; none where that would not do."""
        if count > self._cells.capacity - self._cells.held_by(s.seq_id for s in self._scheduler.running):
            return False
        while self._cells.free < count:
            oldest = self._cache.least_recent()
            if oldest is None:
                return False
            self._evict(oldest)
        return True

    def _release(self, seq_id: int) -> None:
        self._context.remove(seq_id)
        self._cells.remove(seq_id)
        self._free_ids.append(seq_id)

    def _make_room(self, plan: list[PlanItem]) -> list[PlanItem]:
        """Evict, and then preempt, until the plan's cells are free. Preempted sequences leave the plan."""
        while plan and self._cells.free < sum(item.count for item in plan):
            oldest = self._cache.least_recent()
            if oldest is not None:
                self._evict(oldest)
                continue
            victim = self._scheduler.victim()
            if victim is None:
                # One sequence is bounded by the context; this is reached only if llama.cpp counts otherwise.
                self._fail(plan[0].sequence.state, EngineFailure("the KV cache cannot hold this sequence"))
                return []
            self._preempt(victim)
            plan = [item for item in plan if item.sequence is not victim]
        return plan

    def _preempt(self, sequence: Sequence) -> None:
        """Take a running sequence's cells; it is computed again later and goes on where it was."""
        self._scheduler.running.remove(sequence)
        self._release(sequence.seq_id)
        sequence.status, sequence.seq_id = Status.WAITING, -1
        sequence.num_computed = sequence.prefill_end = 0
        sequence.prompt_infos.clear()
        self._scheduler.waiting.appendleft(sequence)

    def _with_drafts(self, plan: list[PlanItem]) -> list[PlanItem]:
        """Use what is left of the batch and of the free cells for drafts, where nothing is prefilled."""
        if not self._drafter.may_pay(len(plan)) or not all(item.is_decode for item in plan):
            return plan
        earlier = self._cache.latest(_LOOKUP_SEQUENCES)
        num_tokens = sum(item.count for item in plan)
        room = min(self._batch.capacity, self._cells.free) - num_tokens
        drafted: list[PlanItem] = []
        for item in plan:
            draft = None
            if item.count == 1 and item.outputs == "last":
                left = min(room, self._cells.capacity - len(item.sequence.tokens))
                draft = self._drafter.draft(item.sequence, len(plan), left, earlier)
            room -= 0 if draft is None else len(draft)
            drafted.append(item if draft is None else replace(item, draft=draft))
        return drafted

    # One batch

    def _fill(self, plan: list[PlanItem]) -> list[int]:
        """Put the plan into the batch; return the batch index of each item's last token."""
        self._batch.clear()
        indices: list[int] = []
        for item in plan:
            s = item.sequence
            if item.draft is not None:
                tokens = np.concatenate((s.tokens.view(s.num_computed), item.draft))
                last = self._batch.add(tokens, s.num_computed, s.seq_id, outputs="all")
                indices.append(last - len(item.draft))
            elif item.count == 1 and item.outputs == "last":
                indices.append(self._batch.add_one(s.tokens[s.num_computed], s.num_computed, s.seq_id))
            else:
                tokens = s.tokens.view(s.num_computed, s.num_computed + item.count)
                indices.append(self._batch.add(tokens, s.num_computed, s.seq_id, outputs=item.outputs))
        return indices

    def _decode(self, plan: list[PlanItem]) -> int:
        interruptible = not self._cache.whole_only
        with self._abort_lock:
            self._context.abort_flag.clear()
            if interruptible:
                self._prefilling = frozenset(i.sequence.request.id for i in plan if not i.is_decode)
        self._phase.enter("decode")
        if self._adapters is not None:
            self._adapters.apply(self._context, plan[0].sequence.request.adapters)
        try:
            return self._context.decode(self._batch)
        finally:
            with self._abort_lock:
                self._prefilling = frozenset()
                self._context.abort_flag.clear()

    def _observe(self, plan: list[PlanItem], seconds: float) -> None:
        decode = sum(item.size for item in plan if item.is_decode)
        self._pacer.observe(decode, self._batch.size - decode, seconds)
        if decode == self._batch.size:
            self._drafter.observe_step(decode, seconds)
        self._steps += 1
        self._computed += self._batch.size
        self._step_sizes[bisect.bisect_left(STEP_SIZES, self._batch.size)] += 1

    def _recover(self, plan: list[PlanItem], code: int) -> None:
        """A decode that did not happen: the plan's sequences are as they were, or the request fails."""
        if code == DECODE_NO_CELLS:
            # Our count said there was room, so the cells are fragmented: give up the oldest cached sequence.
            oldest = self._cache.least_recent()
            victim = self._scheduler.victim()
            if oldest is not None:
                self._evict(oldest)
            elif victim is not None:
                self._preempt(victim)
            else:
                self._fail(plan[0].sequence.state, EngineFailure("the KV cache cannot hold this sequence"))
            return
        if code == DECODE_ABORTED:
            for item in plan:
                self._context.truncate(item.sequence.seq_id, item.sequence.num_computed)
            return
        for state in {id(item.sequence.state): item.sequence.state for item in plan}.values():
            self._fail(state, EngineFailure(f"llama_decode failed with code {code}"))
        self._reset_memory()

    def _reset_memory(self) -> None:
        """After a fatal decode the memory is in an unknown state: everything is computed again."""
        for sequence in list(self._scheduler.running):
            self._preempt(sequence)
        for seq_id in self._cache.seq_ids:
            self._cache.remove(seq_id)
            self._release(seq_id)
        self._context.clear()
        self._cells.clear()

    def _commit(self, plan: list[PlanItem], indices: list[int]) -> None:
        for item in plan:
            item.sequence.num_computed += item.count
            item.sequence.num_drafted = item.size - item.count
            self._cells.extend(item.sequence.seq_id, item.size)
            if item.sequence.num_computed in item.sequence.checkpoints:
                self._states.save_checkpoint(item.sequence)
        for item, index in zip(plan, indices, strict=True):
            sequence = item.sequence
            if sequence.status is not Status.RUNNING:
                continue
            if item.outputs == "all":
                self._score_prompt(sequence, item.count, index)
            if item.draft is not None:
                self._verify(sequence, item.draft, index)
            elif sequence.num_uncomputed == 0:
                self._advance(sequence, self._context.logits(index))

    def _verify(self, sequence: Sequence, draft: Tokens, index: int) -> None:
        """Sample behind the newest token, and go on behind each token of the draft that is what was sampled."""
        accepted = 0
        while sequence.status is Status.RUNNING and sequence.num_uncomputed == 0:
            self._advance(sequence, self._context.logits(index + accepted))
            while (
                sequence.num_uncomputed
                and accepted < len(draft)
                and sequence.tokens[sequence.num_computed] == draft[accepted]
            ):
                accepted += 1
                sequence.num_drafted -= 1
                sequence.num_computed += 1
        self._drafter.observe_draft(sequence, len(draft), accepted)
        if sequence.status is Status.RUNNING:
            self._drop_draft(sequence)

    def _drop_draft(self, sequence: Sequence) -> None:
        """Give back the cells of a draft that came to nothing."""
        if sequence.num_drafted:
            self._context.truncate(sequence.seq_id, sequence.num_computed)
            self._cells.shrink(sequence.seq_id, sequence.num_drafted)
            sequence.num_drafted = 0

    def _score_prompt(self, sequence: Sequence, count: int, last_index: int) -> None:
        """Logits at position p score the token at p + 1."""
        wanted = sequence.request.prompt_logprobs or 0
        infos = sequence.prompt_infos
        if not infos:
            infos.append(self._info(sequence.tokens[0], Sampled(sequence.tokens[0])))
        first = sequence.num_computed - count
        for offset in range(count):
            position = first + offset + 1
            if position >= sequence.state.prompt_length:
                break
            token = sequence.tokens[position]
            row = self._context.logits(last_index - count + 1 + offset)
            logprob, top = score(row, token, wanted, self._vocab)
            infos.append(self._info(token, Sampled(token, logprob, top)))
        if sequence.num_computed >= sequence.state.prompt_length:
            sequence.state.scored = True
            self._events.append(PromptScored(sequence.request.id, tuple(infos)))

    # One token

    def _advance(self, sequence: Sequence, logits: Floats) -> None:
        """Sample the next token of a sequence from its logits, which change, and emit what it gives."""
        state = sequence.state
        if state.first_token is None:
            state.first_token = self._clock()
        if sequence.max_new == 0:
            self._finish(sequence, "length")
            return
        self._phase.enter("sample", sequence.request.id)
        first = logits.tobytes() if sequence.request.keep_state and sequence.num_generated == 0 else None
        try:
            tokens = self._next_tokens(sequence, logits)
            if first is not None:
                self._keep(sequence, first, tokens[0].token)
        except JanServeError as error:
            self._fail(state, error)
            return
        for position, sampled in enumerate(tokens, start=1):
            token = sampled.token
            if self._vocab.is_eog(token) or token in sequence.request.stopping.stop_token_ids:
                self._finish(sequence, "stop", eos=True, end=sampled)
                return
            sequence.tokens.append(token)
            sequence.num_generated += 1
            self._generated += 1
            if sampled.logprob is not None:
                sequence.sum_logprob += sampled.logprob
            self._emit(sequence, sampled, is_last=position == len(tokens))
            if sequence.status is Status.FINISHED:
                return

    def _keep(self, sequence: Sequence, logits: bytes, next_token: int) -> None:
        """Put what was computed of a prompt on the shelf, for another server. Raises Overloaded, EngineFailure."""
        if self._shelf is None:
            raise EngineFailure("this worker keeps no states")
        request_id = sequence.request.id
        tokens = tuple(sequence.tokens.view(0, sequence.num_computed).tolist())
        memory = self._context.save_sequence(sequence.seq_id).data
        self._shelf.reserve(request_id, state_bytes(len(memory), self._vocab.n_tokens, len(tokens)))
        self._shelf.keep(
            request_id,
            SequenceState(
                tokens=tokens,
                seed=sequence.seed or 0,
                next_token=next_token,
                logits=logits,
                memory=memory,
            ),
        )
        self._events.append(StateKept(id=request_id, tokens=len(tokens), next_token=next_token))

    def _next_tokens(self, sequence: Sequence, logits: Floats) -> list[Sampled]:
        """One sampled token and what the grammar forces after it; or only what it forces from the very start."""
        sampler = sequence.sampler
        if sequence.num_generated == 0:
            forced = sampler.take_forced()
            if forced:
                self._forced += len(forced)
                return [Sampled(token) for token in forced]
        sampled = sampler.sample(logits)
        forced = sampler.take_forced()
        self._forced += len(forced)
        return [sampled, *(Sampled(token) for token in forced)]

    def _emit(self, sequence: Sequence, sampled: Sampled, *, is_last: bool) -> None:
        """Send what a token brings, and end the sequence if it did. is_last: the grammar stands right behind it."""
        request = sequence.request
        shown = not request.skip_special_tokens or sampled.token in sequence.state.visible_specials
        piece = self._vocab.piece(sampled.token, special=shown)
        info = self._info(sampled.token, sampled) if _wants_tokens(request) else None
        emission = sequence.text.push(piece, info)
        if emission.text or emission.tokens:
            self._events.append(Chunk(request.id, sequence.index, emission.text, emission.tokens))
        sequence.has_line_break = sequence.has_line_break or "\n" in emission.text
        if emission.stop is not None:
            self._finish(sequence, "stop", stop=emission.stop)
        elif is_last and sequence.sampler.is_complete:
            self._finish(sequence, "stop")
        elif sequence.num_generated >= sequence.max_new or self._took_too_long(sequence):
            self._finish(sequence, "length")

    def _took_too_long(self, sequence: Sequence) -> bool:
        limit_s, first = sequence.request.stopping.max_decode_s, sequence.state.first_token
        return (
            limit_s is not None
            and sequence.has_line_break
            and first is not None
            and self._clock() - first > limit_s
        )

    def _info(self, token: int, sampled: Sampled) -> TokenInfo:
        return TokenInfo(
            token,
            self._vocab.piece(token, special=True),
            self._vocab.is_control(token),
            sampled.logprob,
            sampled.top,
        )

    # Endings

    def _finish(
        self,
        sequence: Sequence,
        reason: str,
        *,
        stop: str | None = None,
        eos: bool = False,
        end: Sampled | None = None,
    ) -> None:
        request, state = sequence.request, sequence.state
        if stop is None:
            emission = sequence.text.finish(cut_off=reason == "length")
            stop = emission.stop
            if stop is not None:
                reason = "stop"
            if emission.text or emission.tokens:
                self._events.append(Chunk(request.id, sequence.index, emission.text, emission.tokens))
        scored = request.logprobs is not None and sequence.num_generated > 0
        self._events.append(
            SequenceFinished(
                id=request.id,
                index=sequence.index,
                reason="stop" if reason == "stop" else "length",
                completion_tokens=sequence.num_generated,
                stop=stop,
                eos=eos,
                mean_logprob=sequence.sum_logprob / sequence.num_generated if scored else None,
                seed=sequence.seed,
                end_token=self._info(end.token, end) if end is not None and _wants_tokens(request) else None,
                reasoning_tokens=0 if sequence.guide is None else sequence.guide.reasoning_tokens,
            )
        )
        self._retire(sequence)
        state.completion_tokens += sequence.num_generated
        state.unfinished -= 1
        if state.unfinished == 0:
            self._events.append(
                RequestCompleted(
                    id=request.id,
                    prompt_tokens=state.prompt_length,
                    completion_tokens=state.completion_tokens,
                    cached_tokens=state.cached_tokens or 0,
                    timings=state.timings(self._clock()),
                )
            )

    def _retire(self, sequence: Sequence) -> None:
        """A running sequence ends: its cells become a cached sequence."""
        self._scheduler.running.remove(sequence)
        self._drop_draft(sequence)
        self._drafter.forget(sequence)
        sequence.status = Status.FINISHED
        if sequence.num_computed == 0:
            self._release(sequence.seq_id)
            return
        for covered in self._cache.add(sequence.seq_id, sequence.prefix(sequence.num_computed)):
            self._release(covered)

    def _fail(self, state: RequestState, error: JanServeError) -> None:
        self.abort(state.request.id)
        self._events = [event for event in self._events if event.id != state.request.id]
        self._events.append(Failed(id=state.request.id, code=error.code, payload=error.payload()))


def _wants_tokens(request: GenerateRequest) -> bool:
    return request.return_tokens or request.logprobs is not None
