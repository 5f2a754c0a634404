"""Runs the requests of a call as a session, and sends the answer whole or as a stream."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from jan_serve.core.request import GenerationRequest
from jan_serve.dialects.lmdeploy.distserve.kv_transfer import (
    CacheReply,
    PreservedCache,
    preserving,
    with_migration,
)
from jan_serve.dialects.lmdeploy.services import LmdeployServices
from jan_serve.dialects.lmdeploy.sessions import Session
from jan_serve.dialects.lmdeploy.wire_common import GenerationFields
from jan_serve.dialects.shared.answers import Renderer, answer
from jan_serve.dialects.shared.flat_errors import in_band_error
from jan_serve.generation.batch import generate_batch


async def send_answer(
    request: Request,
    services: LmdeployServices,
    session: Session,
    body: GenerationFields,
    requests: list[GenerationRequest],
    renderer: Renderer,
) -> Response:
    """Raises errors of the tree, and ClientGone."""
    choices = sum(generation.n for generation in requests)
    requests = with_migration(body, requests, stream=bool(body.stream))
    events = session.run(generate_batch(services.generation.generate, requests), choices=choices)
    if requests[0].keep_state and services.control is not None:
        cache = PreservedCache()
        links = services.control.links
        events = preserving(events, session, links, cache, preserve=bool(body.preserve_cache))
        renderer = CacheReply(renderer, session, cache)
    return await answer(
        request, events, renderer, in_band_error, services.streams, stream=body.stream, done_after_error=True
    )
