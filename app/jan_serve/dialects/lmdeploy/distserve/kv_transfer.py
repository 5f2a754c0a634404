"""Disaggregated generation: prefills a prompt for another server, or decodes from a state that another one computed."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator
from typing import Any, Final

import msgspec

from jan_serve.core.caller import key_of_request
from jan_serve.core.closing import closing
from jan_serve.core.events import Completed, GenerationEvent, StatePreserved
from jan_serve.core.kv_transfer import RemoteState
from jan_serve.core.request import GenerationRequest
from jan_serve.dialects.lmdeploy.distserve.wire import MigrationFields
from jan_serve.dialects.lmdeploy.serving import Session
from jan_serve.dialects.ports import PeerLinks
from jan_serve.dialects.shared.answers import Renderer
from jan_serve.dialects.shared.wire_types import MAX_INT
from jan_serve.errors import InvalidRequest

BLOCK_SIZE: Final = 64
"""Tokens per block in LMDeploy's API. Caches are not paged here: only LMDeploy's proxy reads the blocks."""


def with_migration(
    body: MigrationFields, requests: list[GenerationRequest], *, stream: bool
) -> list[GenerationRequest]:
    """The requests with the body's migration fields applied. Raises InvalidRequest."""
    keeps = bool(body.with_cache or body.preserve_cache)
    resume = _remote(body)
    if not keeps and resume is None:
        return requests
    if len(requests) > 1 or requests[0].n > 1:
        raise InvalidRequest(
            "with_cache, preserve_cache and migration_request: one prompt with one choice is needed",
            param="migration_request" if resume is not None else "with_cache",
        )
    if stream and body.with_cache:
        raise InvalidRequest("with_cache: the reply that it adds to cannot be a stream", param="with_cache")
    return [msgspec.structs.replace(requests[0], keep_state=keeps, resume=resume)]


def _remote(body: MigrationFields) -> RemoteState | None:
    migration = body.migration_request
    if migration is None or migration.is_dummy_prefill:
        return None
    if migration.remote_token_id is not None and not 0 <= migration.remote_token_id <= MAX_INT:
        raise InvalidRequest(
            "migration_request: remote_token_id is not a token id", param="migration_request"
        )
    return RemoteState(
        caller=key_of_request(),
        engine=migration.remote_engine_id,
        session=migration.remote_session_id,
        next_token=migration.remote_token_id,
    )


class PreservedCache:
    """The preserved state of the prompt, once it is known, as reply members."""

    def __init__(self) -> None:
        self.kept: StatePreserved | None = None

    def members(self) -> dict[str, Any]:
        """`cache_block_ids` and `remote_token_ids`."""
        if self.kept is None:
            return {"cache_block_ids": None, "remote_token_ids": None}
        return {
            "cache_block_ids": list(range(math.ceil(self.kept.tokens / BLOCK_SIZE))),
            "remote_token_ids": [self.kept.next_token],
        }


async def preserving(
    events: AsyncGenerator[GenerationEvent],
    session: Session,
    links: PeerLinks,
    cache: PreservedCache,
    *,
    preserve: bool,
) -> AsyncGenerator[GenerationEvent]:
    """The events of a request, with StatePreserved taken out and recorded in `cache`.

    preserve: once the request completes, other servers can fetch the state by session id. Otherwise, and on failure,
    the state is released. Raises InvalidRequest if the session id already has a state.
    """
    if session.requested_id is not None and links.is_kept(session.caller, session.requested_id):
        raise InvalidRequest(f"The session_id {session.requested_id} is occupied.", param="session_id")
    bound = False
    try:
        async with closing(events):
            async for item in events:
                match item:
                    case StatePreserved() as kept:
                        cache.kept = kept
                        continue
                    case Completed() if preserve and cache.kept is not None and session.id is not None:
                        links.bind(session.caller, cache.kept.handle, session.id)
                        bound = True
                    case _:
                        pass
                yield item
    finally:
        if cache.kept is not None and not bound:
            links.release(cache.kept.handle)


class CacheReply:
    """A whole reply with the members about its cache."""

    def __init__(self, renderer: Renderer, session: Session, cache: PreservedCache) -> None:
        self._renderer = renderer
        self.add, self.chunks = renderer.add, renderer.chunks
        self._session = session
        self._cache = cache

    def body(self) -> object:
        """The reply. Its id is the session id, by which the cache is fetched."""
        body = self._renderer.body()
        if not isinstance(body, dict):
            return body
        members: dict[str, Any] = {**body, "id": str(self._session.id), **self._cache.members()}
        return members
