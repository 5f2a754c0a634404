"""Disaggregated serving (lmdeploy/pytorch/disagg): a server decodes what another one prefilled."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator
from typing import Annotated, Any, Final, Literal, cast

import msgspec
from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from jan_serve.core.caller import key_of_request
from jan_serve.core.closing import closing
from jan_serve.core.events import Completed, GenerationEvent, StatePreserved
from jan_serve.core.kv_transfer import PeerEndpoint, RemoteState
from jan_serve.core.request import GenerationRequest
from jan_serve.dialects.lmdeploy.outline import DISTSERVE
from jan_serve.dialects.lmdeploy.serving import Serving, Session
from jan_serve.dialects.ports import PeerLinks
from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.answers import Renderer
from jan_serve.dialects.shared.wire_types import MAX_INT, AtMost, Int, LaxModel
from jan_serve.errors import InvalidRequest, PeerFailed
from jan_serve.http.disconnect import while_connected
from jan_serve.http.replies import json_bytes, json_reply

Protocol = Annotated[
    Literal[1, 2, 3], Field(description="1 TCP, 2 RDMA, 3 NVLINK. Caches always travel over TCP here.")
]
_MAX_ENDPOINTS: Final = 64
_SUCCESS, _FAIL, _TCP = 1, 2, 1


class EngineConfig(LaxModel):
    """The layout of an engine. Only parallelism is checked; sizes are informative."""

    tp_size: Int
    ep_size: Int
    dp_size: Int
    pp_size: Int | None
    dp_rank: Int
    block_size: Int
    num_cpu_blocks: Int
    num_gpu_blocks: Int


class EngineEndpoint(LaxModel):
    """Where LMDeploy's engines confirm that a cache was fetched. Here the cache's connection does that."""

    zmq_address: str


class TransferEndpoint(LaxModel):
    """Where caches are fetched: from the other server's `/distserve/p2p_initialize`."""

    protocol: Protocol
    endpoint_info: str


class InitializeRequest(LaxModel):
    """Introduces another server (remote) to this one (local). Their ids are their URLs."""

    protocol: Protocol
    local_engine_id: str
    local_engine_config: EngineConfig
    remote_engine_id: str
    remote_engine_config: EngineConfig
    rank: Int | None = None
    tcp_config: dict[str, Any] | None = None
    rdma_config: dict[str, Any] | None = None
    nvlink_config: dict[str, Any] | None = None


class ConnectRequest(LaxModel):
    """The endpoints of the other server."""

    protocol: Protocol
    remote_engine_id: str
    remote_engine_endpoint_info: EngineEndpoint
    remote_kvtransfer_endpoint_info: Annotated[
        list[TransferEndpoint], AtMost(_MAX_ENDPOINTS, "remote_kvtransfer_endpoint_info")
    ]


class DropRequest(LaxModel):
    engine_id: str
    remote_engine_id: str


class FreeRequest(LaxModel):
    """A preserved cache. remote_engine_id: the other server's id of this one."""

    remote_engine_id: str
    remote_session_id: Int


class MigrationRequest(LaxModel):
    """Where the prompt was computed, and its next token.

    remote_block_ids: ignored, because caches are fetched whole. is_dummy_prefill: nothing was computed.
    """

    protocol: Protocol = 1
    remote_engine_id: str
    remote_session_id: Int
    remote_block_ids: Annotated[list[Int] | None, AtMost(limits.MAX_PROMPT_TOKENS, "remote_block_ids")] = None
    remote_token_id: Int | None = None
    is_dummy_prefill: bool = False


class MigrationFields(LaxModel):
    """Fields that a proxy adds to a generation request."""

    with_cache: Annotated[
        bool | None, Field(description="Add `cache_block_ids` and `remote_token_ids` to the reply.")
    ] = False
    preserve_cache: Annotated[
        bool | None,
        Field(description="Preserve the computed prompt, so that another server can continue from it."),
    ] = False
    migration_request: Annotated[
        MigrationRequest | None, Field(description="Continue from a prompt that another server computed.")
    ] = None


class InitializeReply(TypedDict):
    """Endpoints for the other server. status: 1 is success."""

    status: int
    engine_endpoint_info: dict[str, str]
    kvtransfer_endpoint_info: list[dict[str, Any]]


class ConnectReply(TypedDict, total=False):
    """status: 1, or 2 if the other server could not be reached; `message` has the reason."""

    status: int
    message: str


class DropReply(TypedDict):
    """success: also if there was no link."""

    success: bool


class FreeReply(TypedDict):
    """status: also if there was no cache."""

    status: Literal["SUCCESS"]


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


class CacheReply:
    """A whole reply about its cache, which is fetched by the reply's id. kept: the state, once it is known."""

    def __init__(self, renderer: Renderer, session: Session) -> None:
        self.add, self.chunks, self._whole = renderer.add, renderer.chunks, renderer.body
        self._session = session
        self.kept: StatePreserved | None = None

    def body(self) -> object:
        blocks = tokens = None
        if self.kept is not None:
            blocks = list(range(math.ceil(self.kept.tokens / BLOCK_SIZE)))
            tokens = [self.kept.next_token]
        body = cast(dict[str, Any], self._whole())
        return {**body, "id": str(self._session.id), "cache_block_ids": blocks, "remote_token_ids": tokens}


async def preserving(
    events: AsyncGenerator[GenerationEvent],
    session: Session,
    links: PeerLinks,
    reply: CacheReply,
    *,
    preserve: bool,
) -> AsyncGenerator[GenerationEvent]:
    """The events of a request, with StatePreserved taken out and recorded in `reply`.

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
                        reply.kept = kept
                        continue
                    case Completed() if preserve and reply.kept is not None and session.id is not None:
                        links.bind(session.caller, reply.kept.handle, session.id)
                        bound = True
                    case _:
                        pass
                yield item
    finally:
        if reply.kept is not None and not bound:
            links.release(reply.kept.handle)


def add_distserve_routes(router: APIRouter, serving: Serving, links: PeerLinks, prefix: str) -> None:
    @router.get(f"{prefix}{DISTSERVE}/engine_info", response_model=str)
    async def engine_info(request: Request) -> Response:
        """Describe the default model's engine, as a string of JSON. Loads the model."""
        _, facts = await while_connected(request, serving.generation.facts(None))
        layout = {
            "tp_size": 1,
            "ep_size": 1,
            "dp_size": 1,
            "pp_size": None,
            "dp_rank": 0,
            "block_size": BLOCK_SIZE,
            "num_cpu_blocks": 0,
            "num_gpu_blocks": math.ceil(facts.n_ctx / BLOCK_SIZE),
        }
        return json_reply(json_bytes(layout).decode())

    @router.post(f"{prefix}{DISTSERVE}/p2p_initialize", response_model=InitializeReply)
    async def p2p_initialize(body: InitializeRequest) -> Response:
        """Open a port for another server, with a new key."""
        _check_parallelism(body)
        endpoint = await links.initialize(key_of_request(), body.local_engine_id, body.remote_engine_id)
        host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
        transfer = {"protocol": _TCP, "endpoint_info": endpoint.to_text()}
        address = {"zmq_address": f"tcp://{host}:{endpoint.port}"}
        return json_reply(
            {"status": _SUCCESS, "engine_endpoint_info": address, "kvtransfer_endpoint_info": [transfer]}
        )

    @router.post(f"{prefix}{DISTSERVE}/p2p_connect", response_model=ConnectReply)
    async def p2p_connect(request: Request, body: ConnectRequest) -> Response:
        """Fetch caches from another server from now on. Tests the connection at once."""
        offered = body.remote_kvtransfer_endpoint_info
        if len(offered) != 1:
            raise InvalidRequest(
                f"remote_kvtransfer_endpoint_info: has {len(offered)} endpoints, and one is needed",
                param="remote_kvtransfer_endpoint_info",
            )
        endpoint = PeerEndpoint.from_text(offered[0].endpoint_info, "remote_kvtransfer_endpoint_info")
        try:
            await while_connected(request, links.connect(key_of_request(), body.remote_engine_id, endpoint))
        except PeerFailed as error:
            return json_reply({"status": _FAIL, "message": error.message})
        return json_reply({"status": _SUCCESS})

    @router.post(f"{prefix}{DISTSERVE}/p2p_drop_connect", response_model=DropReply)
    async def p2p_drop_connect(body: DropRequest) -> Response:
        """Drop the link with another server."""
        links.drop(key_of_request(), body.remote_engine_id)
        return json_reply({"success": True})

    @router.post(f"{prefix}{DISTSERVE}/free_cache", response_model=FreeReply)
    async def free_cache(body: FreeRequest) -> Response:
        """Free the preserved cache of a session."""
        links.free(key_of_request(), body.remote_session_id)
        return json_reply({"status": "SUCCESS"})


def _check_parallelism(body: InitializeRequest) -> None:
    """Engines here are single processes, and peers must be too."""
    for name in ("local_engine_config", "remote_engine_config"):
        for size in ("tp_size", "ep_size", "dp_size", "pp_size"):
            if getattr(getattr(body, name), size) not in (1, None):
                raise InvalidRequest(f"{name}.{size}: must be 1", param=f"{name}.{size}")
