"""A GenerationService over a fake client."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime

from jan_serve.core.events import GenerationEvent
from jan_serve.core.request import GenerationRequest
from jan_serve.generation.constraint.grammar_cache import GrammarCache
from jan_serve.generation.deadline import RunningRequests
from jan_serve.generation.media_reader import MediaReader
from jan_serve.generation.prepare import RequestPreparer
from jan_serve.generation.service import GenerationService, Names, exact_name
from tests.support.engine.fake_client import FakeModels
from tests.support.helpers.compiling import translate_inline
from tests.support.helpers.rendering import render_inline

SEED = 77


def preparer(media: MediaReader | None = None) -> RequestPreparer:
    """One whose clock stands and whose seeds are all SEED."""
    return RequestPreparer(
        GrammarCache(translate_inline),
        render_inline,
        now=lambda: datetime(2026, 3, 4, tzinfo=UTC),
        seed=lambda: SEED,
        media=media,
    )


@contextmanager
def service_over(
    models: FakeModels, running: RunningRequests | None = None, names: Names = exact_name
) -> Generator[GenerationService]:
    """A service that compiles in the test's own process."""
    running = running if running is not None else RunningRequests(None)
    yield GenerationService(models, preparer(), running, names=names)


async def collect(service: GenerationService, request: GenerationRequest) -> list[GenerationEvent]:
    """All events of a request."""
    return [event async for event in service.generate(request)]
