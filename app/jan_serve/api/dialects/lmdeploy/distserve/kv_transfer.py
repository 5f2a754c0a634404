"""Generations whose prompts are computed for another server, or by one: the first and the last part of the way."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator
from typing import Any, Final

import msgspec

from jan_serve.api.control_plane import PeerLinks
from jan_serve.api.dialects.lmdeploy.distserve.wire import MigrationFields
from jan_serve.api.dialects.lmdeploy.sessions import Session
from jan_serve.api.shared.answers import WholeRenderer
from jan_serve.api.shared.wire_types import MAX_INT
from jan_serve.core.events import Completed, StatePreserved
from jan_serve.core.kv_transfer import RemoteState
from jan_serve.core.request import GenerationRequest
from jan_serve.errors import InvalidRequest
from jan_serve.generation.batch import PromptEvent
from jan_serve.generation.closing import closing

BLOCK_SIZE: Final = 64
"""Tokens of a block in LMDeploy's count. Caches are not paged here: blocks are for its proxy to look at."""


def migrating(
    body: MigrationFields, requests: list[GenerationRequest], *, stream: bool
) -> list[GenerationRequest]:
    """The requests with what the body says of other servers. Raises InvalidRequest."""
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
    wanted = body.migration_request
    if wanted is None or wanted.is_dummy_prefill:
        return None
    if wanted.remote_token_id is not None and not 0 <= wanted.remote_token_id <= MAX_INT:
        raise InvalidRequest(
            "migration_request: remote_token_id is not a token id", param="migration_request"
        )
    return RemoteState(
        engine=wanted.remote_engine_id,
        session=wanted.remote_session_id,
        next_token=wanted.remote_token_id,
    )


class CacheFacts:
    """What a reply says of the prompt's cache, once it is known."""

    def __init__(self) -> None:
        self.kept: StatePreserved | None = None

    def members(self) -> dict[str, Any]:
        """`cache_block_ids` and `remote_token_ids`, as members of the reply."""
        if self.kept is None:
            return {"cache_block_ids": None, "remote_token_ids": None}
        return {
            "cache_block_ids": list(range(math.ceil(self.kept.tokens / BLOCK_SIZE))),
            "remote_token_ids": [self.kept.next_token],
        }


async def preserving(
    events: AsyncGenerator[PromptEvent],
    session: Session,
    links: PeerLinks,
    facts: CacheFacts,
    *,
    preserve: bool,
) -> AsyncGenerator[PromptEvent]:
    """The events of a request whose cache is kept, without the one that says so.

    preserve: other servers may fetch it by the number of the session, once the request is complete. Else, and where it
    ends in any other way, the cache is dropped. Raises InvalidRequest where that number has a cache already.
    """
    if session.wanted is not None and links.is_kept(session.wanted):
        raise InvalidRequest(f"The session_id {session.wanted} is occupied.", param="session_id")
    bound = False
    try:
        async with closing(events):
            async for item in events:
                match item.event:
                    case StatePreserved() as kept:
                        facts.kept = kept
                        continue
                    case Completed() if preserve and facts.kept is not None and session.id is not None:
                        links.bind(facts.kept.handle, session.id)
                        bound = True
                    case _:
                        pass
                yield item
    finally:
        if facts.kept is not None and not bound:
            links.release(facts.kept.handle)


class WithCache:
    """A whole reply, and what its cache is known by."""

    def __init__(self, renderer: WholeRenderer, session: Session, facts: CacheFacts) -> None:
        self._renderer = renderer
        self._session = session
        self._facts = facts

    def add(self, event: PromptEvent) -> None:
        """Take the next event."""
        self._renderer.add(event)

    def body(self) -> object:
        """The reply. Its id is the number of the session, which the cache is asked for by."""
        body = self._renderer.body()
        if not isinstance(body, dict):
            return body
        members: dict[str, Any] = {**body, "id": str(self._session.id), **self._facts.members()}
        return members
