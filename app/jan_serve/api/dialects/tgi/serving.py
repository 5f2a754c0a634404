"""What TGI's routes share: the checks of a request, its tokens, its place among the others, its times as headers."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from starlette.requests import Request

from jan_serve.api.dialect import Services
from jan_serve.api.dialects.tgi.generate.parse import (
    check,
    check_before_queue,
    check_length,
    constraint_of,
    generation_request,
)
from jan_serve.api.dialects.tgi.generate.wire import Parameters
from jan_serve.api.dialects.tgi.launcher_limits import GenerateLimits
from jan_serve.api.dialects.tgi.metrics import TgiMetrics
from jan_serve.api.http.disconnect import while_connected
from jan_serve.core.constraint import Constraint
from jan_serve.core.events import Completed, GenerationEvent, Timings, TokenInfo, TokenLogprob
from jan_serve.core.model_facts import ModelFacts
from jan_serve.core.request import AdapterChoice, GenerationRequest
from jan_serve.errors import JanServeError, Overloaded
from jan_serve.generation.batch import PromptEvent, generate_batch
from jan_serve.generation.closing import closing
from jan_serve.generation.leases import DefaultingLeases
from jan_serve.generation.service import GenerationService
from jan_serve.generation.templates import TemplateService
from jan_serve.generation.tokenize import TokenizerService

_PING: Final = b":\n\n"


@dataclass(frozen=True, slots=True)
class Asked:
    """A generation before its checks. add_special: BOS as the model wants it, which rendered chats bring themselves.

    model: the name of a model, or of an adapter of the default one, where the caller gave one. constraint: in place of
    what `parameters.grammar` says.
    """

    inputs: str
    parameters: Parameters
    stream: bool = False
    add_special: bool = True
    model: str | None = None
    constraint: Constraint | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A generation that passed the checks. Times are of `time.perf_counter`.

    eos: the token that ends a text whose grammar allows nothing else, which the engine does not compute.
    """

    asked: Asked
    request: GenerationRequest
    model: str
    n_input: int
    compute_type: str
    eos: TokenInfo | None
    started: float
    validated: float

    @property
    def parameters(self) -> Parameters:
        """As they came."""
        return self.asked.parameters

    @property
    def max_new_tokens(self) -> int:
        """After which the text ends with `length`."""
        assert self.request.stopping.max_tokens is not None
        return self.request.stopping.max_tokens


class Serving:
    """Over one application's services. Unknown names of models mean the default one."""

    def __init__(self, services: Services, limits: GenerateLimits) -> None:
        leases = DefaultingLeases(services.models)
        self._generation = GenerationService(leases, services.preparer, services.running)
        self.tokenizer = TokenizerService(leases, services.running)
        self.templates = TemplateService(leases, services.preparer, services.running)
        self.models = services.models
        self.streams = replace(services.streams, ping=_PING)
        self.limits = limits
        self.metrics_page = services.metrics.page
        self.metrics = TgiMetrics(services.metrics.registry, services.models.snapshot)
        self._open = 0

    async def job(self, request: Request | None, asked: Asked) -> Job:
        """Check it and count its tokens. Raises InvalidRequest, Overloaded, and what a model that cannot load raises.

        request: ClientGone is raised when its client leaves; None inside of a stream, which notices that by itself.
        """
        started = time.perf_counter()
        self.metrics.count("tgi_request_count")
        try:
            check_before_queue(asked.parameters, self.limits, stream=asked.stream)
            if self._open >= self.limits.max_concurrent_requests:
                raise Overloaded("Model is overloaded")
            checked = self._checked(asked, started)
            return await (checked if request is None else while_connected(request, checked))
        except JanServeError as error:
            self.metrics.failed(error)
            raise

    async def _checked(self, asked: Asked, started: float) -> Job:
        parameters = asked.parameters
        name, facts = await self.templates.facts(asked.model)
        max_total, max_input = self.limits.total_tokens(facts), self.limits.input_tokens(facts)
        check(asked.inputs, parameters, self.limits, max_input)
        found = await self.tokenizer.tokenize(asked.model, asked.inputs, add_special=asked.add_special)
        tokens = found.tokens if parameters.truncate is None else found.tokens[-parameters.truncate :]
        check_length(parameters, len(tokens), max_input=max_input, max_total=max_total)
        constraint = asked.constraint or constraint_of(parameters.grammar)
        self.metrics.sized(max_input=max_input, max_total=max_total)
        return Job(
            asked=asked,
            request=generation_request(
                parameters,
                tokens,
                self.limits,
                model=asked.model,
                max_total=max_total,
                constraint=constraint,
                adapters=_adapters(parameters.adapter_id or asked.model, facts),
            ),
            model=name,
            n_input=len(tokens),
            compute_type=self.limits.compute_type or _compute_type(facts),
            eos=_eos(facts, with_candidates=bool(parameters.top_n_tokens)),
            started=started,
            validated=time.perf_counter(),
        )

    async def events(
        self, jobs: Sequence[Job], timings: list[Timings] | None = None
    ) -> AsyncGenerator[PromptEvent]:
        """Run them at once. Raises what generating raises, and Overloaded.

        timings: is filled with those of each job, of which the events tell only what they took together.
        """
        timings = [] if timings is None else timings
        timings[:] = [Timings()] * len(jobs)
        if self._open + len(jobs) > self.limits.max_concurrent_requests:
            error = Overloaded("Model is overloaded")
            self.metrics.failed(error)
            raise error
        self._open += len(jobs)
        watch = self.metrics.watch(jobs, timings)
        requests = [job.request for job in jobs]

        async def generate(request: GenerationRequest) -> AsyncGenerator[GenerationEvent]:
            place = next(at for at, each in enumerate(requests) if each is request)
            async with closing(self._generation.generate(request)) as events:
                async for event in events:
                    if isinstance(event, Completed):
                        timings[place] = event.timings
                    yield event

        try:
            async with closing(generate_batch(generate, requests)) as events:
                async for event in events:
                    watch.observe(event)
                    yield event
        except JanServeError as error:
            watch.failed(error)
            raise
        finally:
            self._open -= len(jobs)
            watch.close()


def _adapters(name: str | None, facts: ModelFacts) -> tuple[AdapterChoice, ...] | None:
    """The LoRA adapter of this name. One that the model does not have changes nothing, as in TGI."""
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


def answer_headers(
    jobs: Sequence[Job], timings: Sequence[Timings], generated: Sequence[int]
) -> dict[str, str]:
    """Of a whole answer: sums over its jobs, of times too. generated: tokens of each.

    The total is the sum of the validation, of the wait in the queue, and of what comes after it: until now, or where
    jobs run beside each other until each one's end.
    """
    validation_s = sum(job.validated - job.started for job in jobs)
    queue_s = sum(each.queue_s for each in timings)
    inferences_s = [each.prefill_s + each.decode_s for each in timings]
    if len(jobs) == 1:
        inferences_s = [max(*inferences_s, time.perf_counter() - jobs[0].validated - queue_s)]
    total_s = validation_s + queue_s + sum(inferences_s)
    per_token_s = sum(
        seconds / max(1, tokens) for seconds, tokens in zip(inferences_s, generated, strict=True)
    )
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
    """Of a stream, whose times nobody knows yet. jobs: none where it only tells an error."""
    headers = {
        "content-type": "text/event-stream",
        "cache-control": "no-cache",
        "x-accel-buffering": "no",
    }
    return {**headers, **_input_headers(jobs)} if jobs else headers


def _input_headers(jobs: Sequence[Job]) -> dict[str, str]:
    return {
        "x-compute-type": jobs[0].compute_type,
        "x-compute-characters": str(sum(len(job.asked.inputs) for job in jobs)),
    }


def _ms(seconds: float) -> str:
    """Whole milliseconds, those that have passed."""
    return str(int(seconds * 1000))
