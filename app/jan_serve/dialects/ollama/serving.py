"""One application's state for Ollama's routes: runs jobs, and loads and unloads models."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.chat.detect import knows_thoughts
from jan_serve.core.closing import closing
from jan_serve.core.events import GenerationEvent
from jan_serve.core.models import ModelFacts
from jan_serve.core.request import ChatPrompt, GenerationRequest, InfillPrompt
from jan_serve.dialects.dialect import Services
from jan_serve.dialects.ollama.errors import Unsupported, error_body
from jan_serve.dialects.ollama.parse_common import Job, thinking
from jan_serve.dialects.ollama.render_common import AnswerRenderer, ReplyFacts, Shape, line
from jan_serve.dialects.shared.answers import answer
from jan_serve.errors import UnsupportedOperation
from jan_serve.generation.service import GenerationService
from jan_serve.http.disconnect import while_connected


class Serving:
    """Shared by all requests. An unknown name of a model is always an error: clients then pull it."""

    def __init__(self, services: Services, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.generation = GenerationService(services.models, services.preparer, services.running)
        self.models = services.models
        self.preparer = services.preparer
        self.now = now
        # Clients parse every line as JSON, so nothing is sent while a stream is silent.
        self.streams = msgspec.structs.replace(
            services.streams, ping_s=0.0, media_type="application/x-ndjson"
        )

    async def answer(self, request: Request, job: Job, shape: Shape, *, stream: bool) -> Response:
        """Raises as GenerationService.generate, and Unsupported."""
        head = ReplyFacts(job.name, shape, self.now)
        events = self._events(job, head)
        renderer = AnswerRenderer(head)
        return await answer(
            request, events, renderer, error_body, self.streams, stream=stream, done=b"", framed=line
        )

    async def _events(self, job: Job, head: ReplyFacts) -> AsyncGenerator[GenerationEvent]:
        asked = job.request
        async with self.generation.open(asked.model, asked.ttl_s) as model:
            head.loaded()
            fitted = _fitted(job, model.facts, model.template(asked.model))
            warnings = (*job.warnings, *_context_warning(job.num_ctx, model.facts.n_ctx))
            fitted = msgspec.structs.replace(fitted, warnings=warnings)
            try:
                async with closing(model.generate(fitted)) as events:
                    async for event in events:
                        yield event
            except UnsupportedOperation:
                if isinstance(fitted.prompt, InfillPrompt):
                    raise Unsupported(job.name, "insert") from None
                raise

    async def load(self, request: Request, name: str, ttl_s: float | None) -> int:
        """Load a model; returns the nanoseconds that it took. Raises as ModelLeases.lease."""
        started = time.perf_counter_ns()

        async def load() -> None:
            async with self.generation.open(name, ttl_s):
                pass

        await while_connected(request, load())
        return time.perf_counter_ns() - started

    async def unload(self, request: Request, name: str) -> None:
        """Nothing happens if it is not loaded. Raises ModelNotFound."""
        await while_connected(request, self.models.unload(name))


def _fitted(job: Job, facts: ModelFacts, template: str | None) -> GenerationRequest:
    """The request for this model. Raises Unsupported."""
    if facts.is_embedding_model:
        raise Unsupported(job.name, job.task)
    prompt = job.request.prompt
    if not isinstance(prompt, ChatPrompt):
        return job.request
    if prompt.tools and template is None:
        raise Unsupported(job.name, "tools")
    think = job.think
    if not knows_thoughts(template):
        if think:
            raise Unsupported(job.name, "thinking")
        return job.request
    changes: dict[str, Any] = thinking(prompt, True if think is None else think)
    return msgspec.structs.replace(job.request, prompt=msgspec.structs.replace(prompt, **changes))


def _context_warning(wanted: int | None, n_ctx: int) -> tuple[str, ...]:
    if wanted is None or wanted <= n_ctx:
        return ()
    return (f"num_ctx: {wanted} is above the {n_ctx} tokens of the loaded model, which no request reloads",)
