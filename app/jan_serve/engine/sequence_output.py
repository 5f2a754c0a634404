"""Turns logits into events: samples, writes text, finishes sequences. For the engine thread."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Literal

import msgspec

from jan_serve.core.events import TokenInfo, Usage
from jan_serve.core.kv_transfer import SequenceState
from jan_serve.engine.cache.state_transfer import StateShelf, state_bytes
from jan_serve.engine.llama.context import LlamaContext
from jan_serve.engine.sampler import Floats, Sampled, score
from jan_serve.engine.sequence import Emission, RequestState, Sequence, SequenceStatus
from jan_serve.engine.stats import PhaseClock
from jan_serve.errors import EngineFailure, InsufficientMemory, JanServeError
from jan_serve.ipc.messages import (
    Chunk,
    EngineEvent,
    EngineRequest,
    Failed,
    PromptScored,
    RequestCompleted,
    RequestProgressed,
    SequenceFinished,
    StateKept,
)


class SequenceOutput:
    """The events of one context's sequences. retire: called with each finished sequence. abort: called with the id of
    each failed request. shelf: holds states for other servers; None: `keep_state` fails. phase: its clock is used.
    defers: whether the text of sampled tokens waits for `write_deferred`, unless it may end its sequence."""

    def __init__(
        self,
        context: LlamaContext,
        *,
        phase: PhaseClock,
        waits: Waits,
        shelf: StateShelf | None,
        retire: Callable[[Sequence], None],
        abort: Callable[[int], None],
    ) -> None:
        self._context = context
        self._vocab = context.model.vocab
        self._phase = phase
        self._clock = phase.clock
        self._waits = waits
        self._shelf = shelf
        self._retire = retire
        self._abort = abort
        self._events: list[EngineEvent] = []
        self.defers = False
        self._deferred: defaultdict[int, list[tuple[Sequence, Sampled, int]]] = defaultdict(list)
        """The tokens of each request whose text waits, with the random numbers used up to each."""
        self.generated = self.forced = 0

    def take(self) -> list[EngineEvent]:
        """The events since the last call, in order."""
        events, self._events = self._events, []
        return events

    @property
    def has_events(self) -> bool:
        return bool(self._events)

    @property
    def has_deferred(self) -> bool:
        return bool(self._deferred)

    def write_deferred(self) -> None:
        """Make the events of all text that waits."""
        for request_id in list(self._deferred):
            self._write_deferred_of(request_id)

    def _write_deferred_of(self, request_id: int) -> None:
        for sequence, sampled, draws in self._deferred.pop(request_id, ()):
            self._write(sequence, sampled, draws)

    def drop_deferred(self, request_id: int) -> None:
        self._deferred.pop(request_id, None)

    def fail(self, sequence: Sequence, error: JanServeError) -> None:
        """Abort its request. The error replaces all events of that in this step."""
        request_id = sequence.request.id
        self._abort(request_id)
        self._events = [event for event in self._events if event.id != request_id]
        self._events.append(Failed(id=request_id, code=error.code, payload=error.payload()))

    def report_reading(self, sequence: Sequence) -> None:
        """Report how much of the prompt is read, if the request wants to know."""
        if sequence.index == 0 and sequence.state.first_token is None:
            self._report(sequence, min(sequence.num_computed, sequence.state.prompt_length))

    def _report(self, sequence: Sequence, read_tokens: int | None = None) -> None:
        request, state = sequence.request, sequence.state
        if request.reports_progress:
            usage = Usage(
                prompt_tokens=state.prompt_length,
                completion_tokens=sequence.num_generated,
                cached_tokens=state.cached_tokens or 0,
            )
            timings = state.timings(self._clock())
            self._events.append(
                RequestProgressed(id=request.id, usage=usage, timings=timings, read_tokens=read_tokens)
            )

    def score_prompt(self, sequence: Sequence, count: int, last_index: int) -> None:
        """Score the last `count` computed tokens, whose logits end at a batch index. Logits at position p score the
        token at p + 1."""
        request, infos = sequence.request, sequence.prompt_infos
        wanted = request.prompt_logprobs or 0
        if not infos:
            infos.append(self._info(request, sequence.tokens[0], Sampled(sequence.tokens[0])))
        first = sequence.num_computed - count
        for offset in range(count):
            position = first + offset + 1
            if position >= sequence.state.prompt_length:
                break
            token = sequence.tokens[position]
            row = self._context.logits(last_index - count + 1 + offset)
            logprob, top = score(row, token, wanted, self._vocab)
            infos.append(self._info(request, token, Sampled(token, logprob, top)))
        if sequence.num_computed >= sequence.state.prompt_length:
            sequence.state.scored = True
            self._events.append(PromptScored(tuple(infos), id=request.id))

    def advance(self, sequence: Sequence, logits: Floats) -> None:
        """Sample the next tokens of a sequence and emit their events. Changes `logits`."""
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
            self.fail(sequence, error)
            return
        pattern = 0
        for position, sampled in enumerate(tokens, start=1):
            token = sampled.token
            if self._vocab.is_eog(token) or token in sequence.request.stopping.stop_token_ids:
                self._finish(sequence, "stop", eos=True, end=sampled)
                return
            sequence.tokens.append(token)
            sequence.num_generated += 1
            self.generated += 1
            if sampled.logprob is not None:
                sequence.sum_logprob += sampled.logprob
            if sequence.repetition is not None:
                pattern = sequence.repetition.add(token) or pattern
            self._emit(sequence, sampled, is_last=position == len(tokens))
            if sequence.status is SequenceStatus.FINISHED:
                return
        if pattern and sequence.num_generated >= sequence.request.stopping.min_tokens:
            self._leave_repetition(sequence, pattern)

    def _leave_repetition(self, sequence: Sequence, pattern: int) -> None:
        """End a text that repeats its last `pattern` tokens, or keep it from going on with them. What was sent stays: a
        client has read it. So the way out begins at the next token."""
        if sequence.escapes > 0 and sequence.repetition is not None:
            sequence.escapes -= 1
            sequence.sampler.forbid_next(sequence.repetition.next_of(pattern))
        else:
            self._finish(sequence, "length", repetition=True)

    def _keep(self, sequence: Sequence, logits: bytes, next_token: int) -> None:
        """Put the state of a prompt on the shelf, for another server. Raises Overloaded, EngineFailure,
        InsufficientMemory."""
        if self._shelf is None:
            raise EngineFailure("this worker keeps no states")
        request_id, num_tokens = sequence.request.id, sequence.num_computed
        memory_bytes = self._context.state_bytes(sequence.seq_id)
        self._shelf.reserve(request_id, state_bytes(memory_bytes, self._vocab.n_tokens, num_tokens))
        try:
            memory = self._context.save_sequence(sequence.seq_id).data
        except (JanServeError, MemoryError) as error:
            self._shelf.drop(request_id)
            if isinstance(error, JanServeError):
                raise
            raise InsufficientMemory("There is no memory for a copy of the state of this request.") from error
        tokens = tuple(sequence.tokens.view(0, num_tokens).tolist())
        seed = sequence.seed or 0
        state = SequenceState(tokens=tokens, seed=seed, next_token=next_token, logits=logits, memory=memory)
        self._shelf.keep(request_id, state)
        self._events.append(StateKept(id=request_id, tokens=num_tokens, next_token=next_token))

    def _next_tokens(self, sequence: Sequence, logits: Floats) -> list[Sampled]:
        """A sampled token and those forced after it by the grammar; at the start only forced ones, if any."""
        if sequence.num_generated == 0 and (forced := self._take_forced(sequence)):
            return forced
        return [sequence.sampler.sample(logits), *self._take_forced(sequence)]

    def _take_forced(self, sequence: Sequence) -> list[Sampled]:
        forced = sequence.sampler.take_forced()
        self.forced += len(forced)
        sequence.state.work.forced += len(forced)
        return [Sampled(token) for token in forced]

    def _emit(self, sequence: Sequence, sampled: Sampled, *, is_last: bool) -> None:
        """Emit a token's text; finish the sequence if it ends here. is_last: the grammar has not advanced past it."""
        stop, draws = None, sequence.sampler.draws
        if self.defers and _may_wait(sequence.request):
            self._deferred[sequence.request.id].append((sequence, sampled, draws))
        else:
            stop = self._write(sequence, sampled, draws)
        if stop is not None:
            self._finish(sequence, "stop", stop=stop)
        elif is_last and sequence.sampler.is_complete:
            self._finish(sequence, "stop")
        elif sequence.num_generated >= sequence.max_new or self._took_too_long(sequence):
            self._finish(sequence, "length")

    def _write(self, sequence: Sequence, sampled: Sampled, draws: int) -> str | None:
        """Emit a token's text. Returns the stop string that it completes."""
        request = sequence.request
        piece = self._vocab.piece(sampled.token, special=sequence.state.shows(sampled.token))
        sequence.unsent.append((sampled.token, draws))
        info = self._info(request, sampled.token, sampled) if _wants_tokens(request) else None
        emission = sequence.text.push(piece, info)
        self._emit_text(sequence, emission)
        sequence.has_line_break = sequence.has_line_break or "\n" in emission.text
        return emission.stop

    def _emit_text(self, sequence: Sequence, emission: Emission) -> None:
        """Emit text; text of several tokens of one step is merged, unless tokens are requested."""
        if not emission.text and not emission.tokens:
            return
        text = emission.text[sequence.sent_before :]
        sequence.sent_before = max(0, sequence.sent_before - len(emission.text))
        ids, draws = _leaving(sequence, emission)
        last = self._events[-1] if self._events else None
        same = isinstance(last, Chunk) and (last.id, last.index) == (sequence.request.id, sequence.index)
        if isinstance(last, Chunk) and same and not last.tokens and not emission.tokens:
            self._events.pop()
            text, ids = last.text + text, last.ids + ids
            if sequence.request.reports_progress:
                self._events.pop()
        self._report(sequence)
        chunk = Chunk(sequence.index, text, emission.tokens, id=sequence.request.id, ids=ids, draws=draws)
        self._events.append(chunk)

    def _took_too_long(self, sequence: Sequence) -> bool:
        limit_s, first = sequence.request.stopping.max_decode_s, sequence.state.first_token
        if limit_s is None or first is None or not sequence.has_line_break:
            return False
        return self._clock() - first > limit_s

    def _info(self, request: EngineRequest, token: int, sampled: Sampled) -> TokenInfo:
        vocab, top, entry = self._vocab, sampled.top, ""
        if request.vocabulary_entries:
            entry = vocab.entry(token)
            top = tuple(msgspec.structs.replace(each, entry=vocab.entry(each.id)) for each in top)
        return TokenInfo(
            token, vocab.piece(token, special=True), vocab.is_control(token), sampled.logprob, top, entry
        )

    def _finish(
        self,
        sequence: Sequence,
        reason: Literal["stop", "length"],
        *,
        stop: str | None = None,
        eos: bool = False,
        end: Sampled | None = None,
        repetition: bool = False,
    ) -> None:
        request, state = sequence.request, sequence.state
        if self._deferred:
            self._write_deferred_of(request.id)
        if stop is None:
            emission = sequence.text.finish(cut_off=reason == "length")
            stop, reason = emission.stop, "stop" if emission.stop is not None else reason
            self._emit_text(sequence, emission)
        scored = request.logprobs is not None and sequence.num_generated > 0
        has_end = end is not None and _wants_tokens(request)
        end_token = self._info(request, end.token, end) if has_end and end is not None else None
        context_full = reason == "length" and sequence.fills_context
        self._report(sequence)
        self._events.append(
            SequenceFinished(
                id=request.id,
                index=sequence.index,
                reason=reason,
                completion_tokens=sequence.num_generated,
                stop=stop,
                eos=eos,
                mean_logprob=sequence.sum_logprob / sequence.num_generated if scored else None,
                seed=sequence.seed,
                end_token=end_token,
                reasoning_tokens=0 if sequence.guide is None else sequence.guide.reasoning_tokens,
                context_full=context_full and sequence.num_generated >= sequence.max_new,
                repetition=repetition and reason == "length",
            )
        )
        self._retire(sequence)
        state.completion_tokens += sequence.num_generated
        state.unfinished -= 1
        if state.unfinished == 0:
            state.work.others_s = self._waits.seconds(state)
            self._events.append(
                RequestCompleted(
                    id=request.id,
                    prompt_tokens=state.prompt_length,
                    completion_tokens=state.completion_tokens,
                    cached_tokens=state.cached_tokens or 0,
                    timings=state.timings(self._clock()),
                    work=state.work,
                )
            )


def _leaving(sequence: Sequence, emission: Emission) -> tuple[tuple[int, ...], int]:
    """The ids that leave with this text, and the random numbers used up to the last one. Requested tokens leave in
    order, others at once: their text need not be whole, since the next worker holds back the same."""
    unsent = sequence.unsent
    if len(unsent) == 1 and not emission.tokens and not _wants_tokens(sequence.request):
        token, draws = unsent.pop()
        return (token,), draws
    count = len(emission.tokens) if _wants_tokens(sequence.request) else len(unsent)
    leaving = unsent[:count]
    del unsent[:count]
    return tuple([token for token, _ in leaving]), leaving[-1][1] if leaving else 0


def _wants_tokens(request: EngineRequest) -> bool:
    return request.return_tokens or request.logprobs is not None


def _may_wait(request: EngineRequest) -> bool:
    """Whether neither its end nor its reports depend on when its text is made."""
    stopping = request.stopping
    return not stopping.stop and stopping.max_decode_s is None and not request.reports_progress


def _states(sequences: Iterable[Sequence]) -> dict[int, RequestState]:
    return {id(sequence.state): sequence.state for sequence in sequences}


class Waits:
    """Steps that read prompts keep all other requests waiting; steps that write for some, those that they leave out."""

    def __init__(self) -> None:
        self._reading_ns = 0

    def begin(self, state: RequestState) -> None:
        state.others_ns -= self._reading_ns

    def step_read(self, readers: Iterable[Sequence], seconds: float) -> None:
        nanoseconds = round(seconds * 1e9)
        self._reading_ns += nanoseconds
        for state in _states(readers).values():
            state.others_ns -= nanoseconds

    def step_wrote(self, writers: Iterable[Sequence], running: Iterable[Sequence], seconds: float) -> None:
        waiting = _states(running)
        for key in waiting.keys() - _states(writers).keys():
            waiting[key].others_ns += round(seconds * 1e9)

    def seconds(self, state: RequestState) -> float:
        """Seconds since `begin`."""
        return max(0, state.others_ns + self._reading_ns) / 1e9
