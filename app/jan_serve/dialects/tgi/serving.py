"""One application's state for TGI's routes, and the lease of one request: its model, its checks, its answers."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.core.closing import closing
from jan_serve.core.constraint import Constraint
from jan_serve.core.events import Completed, GenerationEvent, Timings, TokenInfo, TokenLogprob
from jan_serve.core.models import ModelFacts
from jan_serve.core.request import AdapterChoice, GenerationRequest, PartsPrompt, TokenPrompt
from jan_serve.dialects.dialect import Services
from jan_serve.dialects.shared.answers import Chunks, Events, answer_stream
from jan_serve.dialects.tgi.errors import ValidationFailed, overloaded
from jan_serve.dialects.tgi.generate.parse import (
    Parameters,
    check,
    check_before_queue,
    check_length,
    constraint_of,
    generation_request,
    max_tokens,
    prompt_with_images,
)
from jan_serve.dialects.tgi.generate.render import Ending
from jan_serve.dialects.tgi.metrics import TgiMetrics
from jan_serve.dialects.tgi.options import TgiOptions
from jan_serve.errors import LONGER_CONTEXT, JanServeError
from jan_serve.generation.batch import generate_batch
from jan_serve.generation.service import GenerationService, LeasedModel, name_or_default
from jan_serve.http.disconnect import while_connected
from jan_serve.http.errors import Problem, logged_problem
from jan_serve.http.replies import frame
from jan_serve.http.request_record import record_of
from jan_serve.http.sse import EventStream


def requested_model(name: str | None) -> str | None:
    """The model or adapter that a request names, if any: `tgi` stands for the default one."""
    return None if name in (None, "", "tgi") else name


class NativeRequest(msgspec.Struct, frozen=True):
    """Not yet checked. add_special: BOS as the model wants it; a rendered chat brings its own.

    constraint: in place of `parameters.grammar`.
    """

    inputs: str
    parameters: Parameters
    stream: bool = False
    add_special: bool = True
    constraint: Constraint | None = None


class Job(msgspec.Struct, frozen=True):
    """A generation that passed the checks. Times are of `time.perf_counter`."""

    native: NativeRequest
    request: GenerationRequest
    model: str
    n_input: int
    compute_type: str
    ending: Ending
    started: float
    validated: float


def answer_headers(
    jobs: Sequence[Job], timings: Sequence[Timings], generated: Sequence[int]
) -> dict[str, str]:
    """Headers of a whole answer: sums over its jobs, of times too. generated: tokens of each.

    The total is the sum of the validation, the wait in the queue and the inference. The inference of a single job lasts
    until now; of several jobs, each counts until its own end.
    """
    validation_s = sum(job.validated - job.started for job in jobs)
    queue_s = sum(each.queue_s for each in timings)
    inferences_s = [each.prefill_s + each.decode_s for each in timings]
    if len(jobs) == 1:
        inferences_s = [max(*inferences_s, time.perf_counter() - jobs[0].validated - queue_s)]
    total_s = validation_s + queue_s + sum(inferences_s)
    pairs = zip(inferences_s, generated, strict=True)
    per_token_s = sum(seconds / max(1, tokens) for seconds, tokens in pairs)
    return {
        **_input_headers(jobs),
        "x-compute-time": f"{total_s:.6f}",
        "x-total-time": _ms(total_s),
        "x-validation-time": _ms(validation_s),
        "x-queue-time": _ms(queue_s),
        "x-inference-time": _ms(sum(inferences_s)),
        "x-time-per-token": _ms(per_token_s),
        "x-prompt-tokens": str(sum(job.n_input for job in jobs)),
        "x-generated-tokens": str(sum(generated)),
    }


def stream_headers(jobs: Sequence[Job]) -> dict[str, str]:
    """Headers of a stream, whose times are not known yet. jobs: empty if the stream is only an error."""
    headers = {"content-type": "text/event-stream", "cache-control": "no-cache", "x-accel-buffering": "no"}
    return {**headers, **_input_headers(jobs)} if jobs else headers


def _input_headers(jobs: Sequence[Job]) -> dict[str, str]:
    return {
        "x-compute-type": jobs[0].compute_type,
        "x-compute-characters": str(sum(len(job.native.inputs) for job in jobs)),
    }


def _ms(seconds: float) -> str:
    return str(int(seconds * 1000))


_PING: Final = b":\n\n"


class Serving:
    """Shared by all requests. Unknown names of models mean the default one."""

    def __init__(self, services: Services, limits: TgiOptions, metrics: TgiMetrics) -> None:
        self.generation = GenerationService(
            services.models, services.preparer, services.running, names=name_or_default
        )
        self.models = services.models
        self.streams = msgspec.structs.replace(services.streams, ping=_PING)
        self.limits = limits
        self.metrics_page = services.metrics.page
        self.metrics = metrics
        self._open = 0

    @asynccontextmanager
    async def lease(self, request: Request, model: str | None = None) -> AsyncGenerator[RequestLease]:
        """The lease of one request; it ends with the block, or with its stream if one began.

        model: the name of a model or an adapter; None is the default.
        """
        async with AsyncExitStack() as stack:
            lease = RequestLease(self, request, model)
            stack.push_async_callback(lease.close)
            yield lease
            if lease.is_streaming:
                stack.pop_all()

    @property
    def is_full(self) -> bool:
        return self._open >= self.limits.tgi_max_concurrent_requests

    @contextmanager
    def running(self, jobs: int) -> Generator[None]:
        """Count so many jobs while the block runs. Raises Overloaded."""
        if self._open + jobs > self.limits.tgi_max_concurrent_requests:
            error = overloaded()
            self.metrics.failed(error)
            raise error
        self._open += jobs
        try:
            yield
        finally:
            self._open -= jobs

    async def streamed(
        self,
        request: Request,
        begin: Callable[[], Awaitable[tuple[Sequence[Job], Events, Chunks]]],
        render_error: Callable[[Problem], object],
        *,
        done: bytes,
    ) -> Response:
        """A stream, whose errors are events too, also those of `begin`. done: the bytes that end it."""
        try:
            jobs, events, chunks = await begin()
            response = await answer_stream(
                request, events, chunks, render_error, self.streams, done=done, done_after_error=bool(done)
            )
        except JanServeError as error:
            record, jobs = record_of(request.scope), ()
            record.error = error.code
            body = render_error(logged_problem(error, record.request_id))

            async def frames() -> AsyncIterator[bytes]:
                yield frame(body)
                if done:
                    yield done

            response = EventStream(frames(), self.streams)
        response.headers.update(stream_headers(jobs))
        return response


class RequestLease:
    """The model of one request, with its checks and its answers. The lease begins with the first step that needs it.

    is_streaming: a stream has taken over the lease, and ends it. model_name: in the request.
    """

    def __init__(self, serving: Serving, request: Request, model: str | None) -> None:
        self.is_streaming = False
        self._serving = serving
        self._request = request
        self.model_name = model
        self._model: LeasedModel | None = None
        self._stack = AsyncExitStack()

    async def model(self) -> LeasedModel:
        """Waits while it loads. Raises as GenerationService.open."""
        if self._model is None:
            opening = self._serving.generation.open(self.model_name)
            self._model = await self._stack.enter_async_context(opening)
        return self._model

    async def close(self) -> None:
        """Return the model. Nothing happens the second time."""
        await self._stack.aclose()

    async def job(self, native: NativeRequest, *, in_stream: bool = False) -> Job:
        """Raises InvalidRequest, Overloaded, as `model`, and ClientGone but in a stream, which notices that."""
        started = time.perf_counter()
        metrics = self._serving.metrics
        metrics.count("tgi_request_count")
        try:
            check_before_queue(native.parameters, self._serving.limits, stream=native.stream)
            if self._serving.is_full:
                raise overloaded()
            checked = self._checked(native, started)
            return await (checked if in_stream else while_connected(self._request, checked))
        except JanServeError as error:
            metrics.failed(error)
            raise

    async def _checked(self, native: NativeRequest, started: float) -> Job:
        limits, parameters = self._serving.limits, native.parameters
        model = await self.model()
        facts = model.facts
        max_input, max_total = max_tokens(limits, facts)
        check(native.inputs, parameters, limits, max_input)
        prompt, n_input = await _prompt(model, native)
        remedy = LONGER_CONTEXT if max_total == facts.n_ctx else ""
        check_length(parameters, n_input, max_input=max_input, max_total=max_total, remedy=remedy)
        constraint = native.constraint or constraint_of(parameters.grammar)
        self._serving.metrics.sized(max_input=max_input, max_total=max_total)
        request = generation_request(
            parameters,
            self.model_name,
            prompt,
            n_input,
            limits,
            max_total=max_total,
            constraint=constraint,
            adapters=_adapters(parameters.adapter_id or self.model_name, facts),
        )
        assert request.stopping.max_tokens is not None
        eos = _eos(facts, with_candidates=bool(parameters.top_n_tokens))
        return Job(
            native=native,
            request=request,
            model=model.name,
            n_input=n_input,
            compute_type=limits.tgi_compute_type or _compute_type(facts),
            ending=Ending(request.stopping.max_tokens, eos),
            started=started,
            validated=time.perf_counter(),
        )

    async def events(
        self, jobs: Sequence[Job], timings: list[Timings] | None = None
    ) -> AsyncGenerator[GenerationEvent]:
        """Run the jobs side by side. timings: filled for each job. Raises as LeasedModel.generate, and Overloaded."""
        timings = [] if timings is None else timings
        timings[:] = [Timings()] * len(jobs)
        requests = [job.request for job in jobs]
        model = await self.model()

        async def generate(request: GenerationRequest) -> AsyncGenerator[GenerationEvent]:
            index = next(index for index, each in enumerate(requests) if each is request)
            async with closing(model.generate(request)) as events:
                async for event in events:
                    if isinstance(event, Completed):
                        timings[index] = event.timings
                    yield event

        with self._serving.running(len(jobs)):
            watch = self._serving.metrics.watch(jobs, timings)
            try:
                async with closing(generate_batch(generate, requests)) as events:
                    async for event in events:
                        watch.observe(event)
                        yield event
            except JanServeError as error:
                watch.failed(error)
                raise
            finally:
                watch.close()

    async def stream(self, events: Events) -> AsyncGenerator[GenerationEvent]:
        """The events of a stream. From its first event on, its end is the lease's end."""
        self.is_streaming = True
        try:
            async with closing(events):
                async for event in events:
                    yield event
        finally:
            await self.close()


async def _prompt(model: LeasedModel, native: NativeRequest) -> tuple[TokenPrompt | PartsPrompt, int]:
    """The prompt and its number of tokens."""
    truncate = native.parameters.truncate
    prompt = prompt_with_images(model.facts, native.inputs, add_special=native.add_special)
    if prompt is not None:
        if truncate is not None:
            raise ValidationFailed("`truncate` is not supported with images")
        if native.parameters.decoder_input_details:
            raise ValidationFailed("`decoder_input_details` is not supported with images")
        prompt = await model.fetched(prompt)
        return prompt, await model.count(prompt)
    tokens = tuple((await model.tokenize(native.inputs, add_special=native.add_special)).tokens)
    if truncate is not None:
        tokens = tokens[-truncate:]
    return TokenPrompt(tokens, text=native.inputs), len(tokens)


def _adapters(name: str | None, facts: ModelFacts) -> tuple[AdapterChoice, ...] | None:
    """The LoRA adapter of this name. An unknown one changes nothing, as in TGI."""
    known = any(name is not None and each.name.casefold() == name.casefold() for each in facts.adapters)
    return (AdapterChoice(name),) if known and name is not None else None


def _compute_type(facts: ModelFacts) -> str:
    return "gpu+optimized" if facts.n_gpu_layers else "cpu+optimized"


def _eos(facts: ModelFacts, *, with_candidates: bool) -> TokenInfo | None:
    token = facts.special_tokens.get("eos") or facts.special_tokens.get("eot")
    if token is None:
        return None
    piece = token.text.encode()
    only = (TokenLogprob(token.id, piece, 0.0, True),) if with_candidates else ()
    return TokenInfo(token.id, piece, True, 0.0, only)
