"""The engine: continuous batching over one llama.cpp context. Owned by one thread; does no I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
import numpy as np

from jan_serve.core.engine_stats import EngineStats
from jan_serve.core.kv_transfer import SequenceState
from jan_serve.engine.cache.cell_allocator import IDLE_CELLS, CellAllocator
from jan_serve.engine.cache.state_cache import StateCache
from jan_serve.engine.cache.state_transfer import StateShelf
from jan_serve.engine.decoding import Adapters, StepBatch
from jan_serve.engine.drafting.draft_model import DraftModel, NextTokenHead
from jan_serve.engine.drafting.drafter import Drafter
from jan_serve.engine.drafting.prompt_lookup import MAX_DRAFT
from jan_serve.engine.llama.context import (
    DECODE_ABORTED,
    DECODE_NO_CELLS,
    DECODE_OK,
    LlamaContext,
)
from jan_serve.engine.media_encoder import MediaEncoder, MediaSteps
from jan_serve.engine.preemption import Preemption
from jan_serve.engine.scheduling.scheduler import Admission, Scheduler
from jan_serve.engine.scheduling.step_planner import ALONE_S, BACKGROUND_S, StepPlanner
from jan_serve.engine.sequence import Draft, PlanItem, Sequence, SequenceStatus
from jan_serve.engine.sequence_output import SequenceOutput, Waits
from jan_serve.engine.stats import EngineCounters, PhaseClock, StepClock
from jan_serve.engine.tokens import ends_of_turns
from jan_serve.errors import JanServeError
from jan_serve.ipc.messages import EngineEvent, EngineSettings


class Engine:
    """Runs sequences: `add` and `abort` between steps, `step` as long as `has_work`."""

    def __init__(
        self,
        context: LlamaContext,
        settings: EngineSettings,
        *,
        phase: PhaseClock,
        states: StateCache | None = None,
        draft_model: DraftModel | None = None,
        shelf: StateShelf | None = None,
        adapters: Adapters | None = None,
        encoder: MediaEncoder | None = None,
        on_fetched: Callable[[], None] = lambda: None,
        send: Callable[[list[EngineEvent]], None] | None = None,
    ) -> None:
        """context: its cells are this engine's alone. settings: as the loader resolved them for this model. phase: its
        clock is the engine's. encoder: of images and sound, if the model has a projector. on_fetched: called by another
        thread when a state is read from disk; `wake` must follow. send: the text of a step is made, and sent by this,
        while a device computes the next step, where LlamaContext.decode goes on meanwhile. None: `step` returns all its
        events."""
        self._context = context
        self._vocab = context.model.vocab
        parallel = settings.parallel or 1
        self._memory = CellAllocator(
            context,
            n_ctx=settings.n_ctx or context.n_ctx,
            n_sequences=parallel + settings.cache_sequences,
            states=states,
            idle_cells=IDLE_CELLS if settings.idle_cells is None else settings.idle_cells,
            on_fetched=on_fetched,
        )
        self._scheduler = Scheduler(
            parallel,
            self._memory.cells,
            self._memory.cache,
            share_prefill=settings.share_prefill,
            prefer_cached=settings.prefer_cached,
            reaches_back=context.reaches_back,
            is_fetching=self._memory.states.is_fetching,
            num_fetched=self._memory.states.num_fetched,
        )
        self._planner: StepPlanner[Sequence] = StepPlanner(context.n_batch, settings.stream_share)
        # A recurrent memory cannot be cut further than it keeps states.
        max_draft = context.max_rollback if context.model.is_recurrent else MAX_DRAFT
        self._head = draft_model if isinstance(draft_model, NextTokenHead) else None
        self._drafter = Drafter(
            self._planner.costs,
            settings.prompt_lookup if max_draft else "off",
            draft_model,
            longest=self._memory.cells.capacity,
            max_draft=max_draft,
            model_mode="auto" if self._head is None else settings.mtp,
        )
        self._batch = StepBatch(context, adapters, phase, can_stop=not self._memory.whole_only)
        self._draft_model = draft_model
        self._encoder, self._media = encoder, MediaSteps(encoder, context)
        self._preemption = Preemption(
            self._memory, self._scheduler, self._drafter, self._media, flush=self.flush, fail=self._fail
        )
        self._must_wait = False
        self._phase, self._clock = phase, phase.clock
        self._shelf = shelf
        self._waits = Waits()
        self._output = SequenceOutput(
            context, phase=phase, waits=self._waits, shelf=shelf, retire=self._retire, abort=self.abort
        )
        self._is_crowded = False
        # A draft model would compute before the text of the step is sent.
        self._send = send if draft_model is None else None
        self._unobserved: tuple[int, float] | None = None
        self._step_clock = StepClock()
        self._counters = EngineCounters()

    @property
    def has_work(self) -> bool:
        return self._scheduler.has_work

    @property
    def can_step(self) -> bool:
        """Whether a step may get somewhere: not while all sequences wait for images or saved states. `add`, `abort` and
        `wake` end that wait."""
        return self._scheduler.has_work and not self._must_wait

    @property
    def is_writing(self) -> bool:
        """Whether any sequence decodes: its stream waits while the thread does other work."""
        running = self._scheduler.running
        return any(not sequence.is_prefilling and not sequence.background for sequence in running)

    @property
    def is_background(self) -> bool:
        """Whether all its work may wait for any other."""
        scheduler = self._scheduler
        return all(sequence.background for sequence in (*scheduler.running, *scheduler.waiting))

    def stats(self) -> EngineStats:
        """Counters and gauges. Any thread; each value is consistent by itself."""
        memory, states, counters = self._memory, self._memory.states, self._counters
        return EngineStats(
            steps_total=counters.steps,
            prompt_tokens_total=counters.prompt_tokens,
            computed_tokens_total=counters.computed,
            step_sizes=tuple(counters.step_sizes),
            prefill_steps=self._step_clock.times(prefills=True),
            decode_steps=self._step_clock.times(prefills=False),
            extra_tokens=tuple(counters.extra_tokens),
            cached_tokens_total=counters.cached,
            shared_tokens_total=counters.shared,
            passed_total=self._scheduler.passed_total,
            made_way_total=memory.made_way_total,
            stream_pauses_total=self._planner.pauses_total,
            mixed_steps_total=self._planner.mixed_total,
            generated_tokens_total=self._output.generated,
            forced_tokens_total=self._output.forced,
            running=len(self._scheduler.running),
            waiting=len(self._scheduler.waiting),
            cells_used=memory.cells.used,
            cells_total=memory.cells.capacity,
            cached_sequences=len(memory.cache),
            saved_total=states.saved,
            restored_total=states.restored,
            drafted_total=self._drafter.drafted,
            accepted_total=self._drafter.accepted,
            drafted_by_model_total=self._drafter.drafted_by_model,
            accepted_by_model_total=self._drafter.accepted_by_model,
            cache_ram_bytes=states.tiers.ram_used,
            media_encoded_total=self._encoder.encoded_total if self._encoder is not None else 0,
            media_reused_total=self._encoder.reused_total if self._encoder is not None else 0,
        )

    def add(self, sequences: Iterable[Sequence]) -> None:
        """Queue the sequences of a request."""
        self.wake()
        choices = list(sequences)
        for sequence in choices:
            if self._memory.whole_only:
                sequence.checkpoints = ends_of_turns(sequence.tokens.view(), self._vocab.eog_ids)
                if len(choices) > 1:
                    # The choices share the prefix before the token whose logits they sample. If some start later, when
                    # the first one has moved past it, its state is saved there.
                    sequence.fork = sequence.state.prompt_length - 1
                    if len(choices) > self._scheduler.parallel - len(self._scheduler.running):
                        sequence.checkpoints = (*sequence.checkpoints, sequence.fork)
            if sequence.index == 0:
                self._counters.prompt_tokens += sequence.state.prompt_length
            self._scheduler.waiting.append(sequence)

    def wake(self) -> None:
        """An image is encoded, or a saved state is read."""
        self._must_wait = False

    def abort(self, request_id: int) -> None:
        """Drop a request: its cells are freed or cached at once, and no event of it follows."""
        self.wake()
        self._output.drop_deferred(request_id)
        for sequence in [s for s in self._scheduler.waiting if s.request.id == request_id]:
            self._scheduler.waiting.remove(sequence)
            self._memory.states.forget(sequence)
            self._drop_resumed(sequence)
            sequence.status = SequenceStatus.FINISHED
        for sequence in [s for s in self._scheduler.running if s.request.id == request_id]:
            self._retire(sequence)

    def interrupt_prefill(self, request_id: int) -> None:
        """Stop the current decode if it prefills this request. Thread-safe; `abort` must follow."""
        self._batch.interrupt(request_id)

    def make_way(self) -> None:
        """Stop the current decode if it only reads prompts in the background. Thread-safe."""
        self._batch.make_way()

    def save(self, timeout_s: float) -> None:
        """Save the cache for the next worker of this model. Blocks for the disk, up to `timeout_s`."""
        self.flush()
        self._memory.save(timeout_s)

    def grow(self, n_ctx: int) -> None:
        """Make the context longer. Running sequences go on in it, and the cache stays. Blocks for the copies. Raises as
        the constructor of LlamaContext; then nothing has changed."""
        self.flush()
        longer, draft_model = self._context.resized(n_ctx), self._draft_model
        try:
            drafts = None if draft_model is None else draft_model.resized(n_ctx, longer)
        except JanServeError:
            longer.close()
            raise
        for sequence in reversed(list(self._scheduler.running)):
            self._preemption.preempt(sequence, keeps=True)
        self._memory.grow(longer, n_ctx)
        self._drafter.longest = n_ctx
        if draft_model is not None and drafts is not None:
            draft_model.become(drafts)

    def flush(self) -> None:
        """Make and send what the latest step left for the next one. Must precede other work of the thread."""
        if self._unobserved is not None:
            rows, seconds = self._unobserved
            self._unobserved = None
            self._planner.observe(rows, 0, seconds)
        if self._output.has_deferred and self._send is not None:
            self._output.write_deferred()
            self._send(self._output.take())

    def step(self) -> list[EngineEvent]:
        """Admit, compute one batch, and before it those of images, sample. Blocks. Returns the events in order."""
        times = self._step_clock
        times.begin()
        self._phase.enter("other")
        self._output.defers = False
        running = len(self._scheduler.running)
        with times.part("join"):
            self._admit()
        if not 0 < running < len(self._scheduler.running):
            times.drop("join")
        if self._send is not None:
            # What a step leaves waits for one batch of decodes at most: nothing that takes longer comes before it.
            self._output.defers = self._only_decodes()
            if not self._output.defers:
                self.flush()
        now = self._clock()
        ready = self._media.ready(self._scheduler.running, self._fail)
        chosen = self._scheduler.next_turn(now, ready)
        is_short = not self._batch.can_stop and bool(chosen) and chosen[0].background
        turn = self._planner.plan(chosen, now=now, most_s=BACKGROUND_S if is_short else ALONE_S)
        plan = self._preemption.make_room(
            self._scheduler.plan(self._batch.capacity, turn.max_prefill, turn.streams, turn.reads)
        )
        is_reading = self._memory.states.is_reading and not self._scheduler.running
        self._must_wait = not plan and (self._media.is_waiting or is_reading)
        media = [item for item in plan if item.is_media]
        plan = [item for item in plan if not item.is_media] if media else self._with_drafts(plan)
        started = self._clock()
        with times.part("forward"):
            is_computed = self._compute_media(media)
        if is_computed and media and not plan:
            self._observe_reading(media, media, self._clock() - started)
            times.end(prefills=True)
        elif is_computed and plan:
            indices = self._batch.fill(plan)
            reading = [*media, *(item for item in plan if not item.is_decode)]
            only_decode = not reading
            with times.part("forward"):
                code = self._batch.decode(plan, meanwhile=self.flush if self._output.defers else None)
            if code == DECODE_OK:
                if only_decode:
                    self._counters.count_step(self._batch.size)
                    if len(plan) < len(self._scheduler.running):
                        writers = (item.sequence for item in plan)
                        self._waits.step_wrote(writers, self._scheduler.running, self._clock() - started)
                else:
                    self._observe_reading([*plan, *media], reading, self._clock() - started)
                computed, sampled = self._clock(), self._output.generated
                with times.part("sampling"):
                    self._commit(plan, indices)
                times.end(prefills=not only_decode)
                if only_decode:
                    # Each accepted token would also be sampled in a step of its own: that is no cost of a draft.
                    share = len(plan) / max(len(plan), self._output.generated - sampled)
                    sampling_s = share * (self._clock() - computed)
                    self._observe_decode(self._batch.size, computed - started + sampling_s, len(plan))
            else:
                self._preemption.recover(plan, code)
                if code not in (DECODE_NO_CELLS, DECODE_ABORTED):
                    times.fail(prefills=not only_decode)
        if self._output.defers and not (plan and self.can_step):
            self.flush()
        waits_for = "encode" if self._media.is_waiting else "other"
        self._phase.enter(waits_for if self._must_wait else "idle")
        return self._output.take()

    def _only_decodes(self) -> bool:
        """Whether this step only decodes, and nothing began in it."""
        running = self._scheduler.running
        return not self._output.has_events and not any(sequence.is_prefilling for sequence in running)

    # Admission and cells

    def _admit(self) -> None:
        paused: Sequence | None = None
        while True:
            admission = self._scheduler.next_admission()
            if admission is not None:
                self._start(admission)
                self._is_crowded, paused = True, None
                continue
            if paused is not None and not paused.background:
                break
            if (paused := self._scheduler.next_pause()) is None:
                break
            self._preemption.preempt(paused, keeps=True)
        if self._is_crowded:
            self._is_crowded = False
            self.flush()
            self._memory.limit_idle_cells(sequence.seq_id for sequence in self._scheduler.running)

    def _start(self, admission: Admission) -> None:
        self.flush()
        sequence, running = admission.sequence, self._scheduler.running
        prefix = admission.prefix if sequence.resumed is None else None
        is_live = prefix is not None and prefix.seq_id in {other.seq_id for other in running}
        num_cached = self._memory.occupy(sequence, prefix, running)
        sequence.prefill_end = len(sequence.tokens)
        sequence.num_computed = sequence.num_cached = num_cached
        self._counters.cached += num_cached
        # A state restored from the tiers is longer than the live prefix.
        if is_live and prefix is not None and num_cached == prefix.length:
            self._counters.shared += num_cached
        state = sequence.state
        if state.started is None:
            state.started = self._clock()
            self._waits.begin(state)
        if state.cached_tokens is None:
            state.cached_tokens = min(sequence.num_cached, state.prompt_length)
            state.work.cached_in = sequence.cached_in
        sequence.status = SequenceStatus.RUNNING
        self._scheduler.waiting.remove(sequence)
        running.append(sequence)
        self._output.report_reading(sequence)
        if sequence.resumed is not None:
            self._resume(sequence, sequence.resumed)

    def _resume(self, sequence: Sequence, state: SequenceState) -> None:
        """Restore the state that another server computed and sample on. Without room for it, prefill here."""
        restored = self._memory.replace(sequence, state)
        self._drop_resumed(sequence)
        length = len(state.tokens) if restored else 0
        self._counters.cached += length
        sequence.num_computed = sequence.num_cached = sequence.state.cached_tokens = length
        sequence.state.work.cached_in = "server" if restored else None
        if restored:
            self._output.advance(sequence, np.frombuffer(state.logits, "<f4").copy())

    def _drop_resumed(self, sequence: Sequence) -> None:
        """Drop the other server's state of a sequence that is restored, or does not run."""
        sequence.resumed, resume = None, sequence.request.resume
        if self._shelf is not None and resume is not None:
            self._shelf.drop(resume.state)

    def _with_drafts(self, plan: list[PlanItem]) -> list[PlanItem]:
        """Fill the rest of the batch and of the free cells with drafts, unless the plan prefills."""
        if not plan or not all(item.is_decode for item in plan):
            return plan
        num_tokens = sum(item.count for item in plan)
        room = min(self._batch.capacity, self._memory.cells.free) - num_tokens
        self._phase.enter("decode")  # of a draft model
        takers = [i.sequence if i.count == 1 and i.outputs == "last" else None for i in plan]
        drafts = self._drafter.drafts(takers, num_tokens, room)
        return [
            item if draft is None else msgspec.structs.replace(item, draft=draft)
            for item, draft in zip(plan, drafts, strict=True)
        ]

    # One batch

    def _compute_media(self, items: list[PlanItem]) -> bool:
        """Compute the cells of images. False, and the step must end, if a batch failed."""
        for group, batch in self._media.batches(items):
            code = self._batch.decode(group, batch)
            if code != DECODE_OK:
                self._preemption.recover(group, code)
                return False
            for item in group:
                item.sequence.num_computed += item.count
                self._memory.cells.extend(item.sequence.seq_id, item.count)
                self._media.computed(item.sequence)
                self._output.report_reading(item.sequence)
        return True

    def _observe_reading(self, plan: list[PlanItem], reading: list[PlanItem], seconds: float) -> None:
        """Learn from a step that read prompts or images. plan: all that it computed, not committed yet; or media."""
        tokens, prefill = sum(item.size for item in plan), sum(item.size for item in reading)
        self._planner.observe(tokens - prefill, prefill, seconds)
        self._counters.count_step(tokens)
        self._waits.step_read((item.sequence for item in reading), seconds)

    def _observe_decode(self, rows: int, seconds: float, num_streams: int) -> None:
        """Learn from a step that only decoded: soon if the next plan does not depend on it, as after a draft."""
        if self._output.defers and rows == num_streams:
            self._unobserved = rows, seconds
        else:
            self._planner.observe(rows, 0, seconds)

    def _commit(self, plan: list[PlanItem], indices: list[int]) -> None:
        for item in plan:
            item.sequence.num_computed += item.count
            item.sequence.num_drafted = item.size - item.count
            self._output.report_reading(item.sequence)
            self._memory.cells.extend(item.sequence.seq_id, item.size)
            if item.sequence.num_computed in item.sequence.checkpoints:
                self._memory.states.save_checkpoint(item.sequence)
        for item, index in zip(plan, indices, strict=True):
            sequence, first = item.sequence, index - item.count + 1
            if sequence.status is not SequenceStatus.RUNNING:
                continue
            computed = sequence.num_computed - item.count
            if item.outputs == "all":
                self._output.score_prompt(sequence, item.count, index)
            if item.draft is not None:
                self._verify(sequence, item.draft, index)
            elif sequence.num_uncomputed == 0:
                self._counters.count_turn(0)
                self._output.advance(sequence, self._context.logits(index))
            if self._head is not None and sequence.status is SequenceStatus.RUNNING:
                self._head.observe(sequence, first, sequence.num_computed - computed)

    def _verify(self, sequence: Sequence, draft: Draft, index: int) -> None:
        """Sample after the newest token, and after each draft token that equals the sampled one."""
        accepted = 0
        while sequence.status is SequenceStatus.RUNNING and sequence.num_uncomputed == 0:
            self._output.advance(sequence, self._context.logits(index + accepted))
            while (
                sequence.num_uncomputed
                and accepted < len(draft.tokens)
                and sequence.tokens[sequence.num_computed] == draft.tokens[accepted]
            ):
                accepted += 1
                sequence.num_drafted -= 1
                sequence.num_computed += 1
        self._drafter.observe_draft(sequence, draft, accepted)
        self._counters.count_turn(accepted)
        if sequence.status is SequenceStatus.RUNNING:
            self._memory.drop_draft(sequence)

    def _fail(self, sequence: Sequence, error: JanServeError) -> None:
        self.flush()
        self._output.fail(sequence, error)

    def _retire(self, sequence: Sequence) -> None:
        """Move a running sequence to the cache."""
        with self._step_clock.part("leave"):
            self._scheduler.running.remove(sequence)
            self._drafter.remember(sequence)
            self._media.forget(sequence)
            sequence.status = SequenceStatus.FINISHED
            self._memory.keep(sequence)
            # The next step copies its state to RAM, once the events of this one are on their way.
            self._is_crowded = True
