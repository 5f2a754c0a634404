"""Routes that link two servers, so that one decodes what the other prefilled."""

from __future__ import annotations

import math

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.core.caller import key_of_request
from jan_serve.core.kv_transfer import PeerEndpoint
from jan_serve.dialects.lmdeploy.distserve.kv_transfer import BLOCK_SIZE
from jan_serve.dialects.lmdeploy.distserve.wire import (
    FAIL,
    SUCCESS,
    TCP,
    ConnectReply,
    ConnectRequest,
    DropReply,
    DropRequest,
    FreeReply,
    FreeRequest,
    InitializeReply,
    InitializeRequest,
)
from jan_serve.dialects.lmdeploy.outline import DISTSERVE
from jan_serve.dialects.lmdeploy.serving import LmdeployServices
from jan_serve.dialects.ports import PeerLinks
from jan_serve.errors import InvalidRequest, PeerFailed
from jan_serve.http.disconnect import while_connected
from jan_serve.http.replies import json_bytes, json_reply


def add_distserve_routes(
    router: APIRouter, services: LmdeployServices, links: PeerLinks, prefix: str
) -> None:
    @router.get(f"{prefix}{DISTSERVE}/engine_info", response_model=str)
    async def engine_info(request: Request) -> Response:
        """Describe the default model's engine, as a string of JSON. Loads the model."""
        _, facts = await while_connected(request, services.generation.facts(None))
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
        reply: InitializeReply = {
            "status": SUCCESS,
            "engine_endpoint_info": {"zmq_address": f"tcp://{host}:{endpoint.port}"},
            "kvtransfer_endpoint_info": [{"protocol": TCP, "endpoint_info": endpoint.to_text()}],
        }
        return json_reply(reply)

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
            failed: ConnectReply = {"status": FAIL, "message": error.message}
            return json_reply(failed)
        reply: ConnectReply = {"status": SUCCESS}
        return json_reply(reply)

    @router.post(f"{prefix}{DISTSERVE}/p2p_drop_connect", response_model=DropReply)
    async def p2p_drop_connect(body: DropRequest) -> Response:
        """Drop the link with another server."""
        links.drop(key_of_request(), body.remote_engine_id)
        reply: DropReply = {"success": True}
        return json_reply(reply)

    @router.post(f"{prefix}{DISTSERVE}/free_cache", response_model=FreeReply)
    async def free_cache(body: FreeRequest) -> Response:
        """Free the preserved cache of a session."""
        links.free(key_of_request(), body.remote_session_id)
        reply: FreeReply = {"status": "SUCCESS"}
        return json_reply(reply)


def _check_parallelism(body: InitializeRequest) -> None:
    """Engines here are single processes, and peers must be too."""
    for name, config in (
        ("local_engine_config", body.local_engine_config),
        ("remote_engine_config", body.remote_engine_config),
    ):
        for size in ("tp_size", "ep_size", "dp_size", "pp_size"):
            if getattr(config, size) not in (1, None):
                raise InvalidRequest(f"{name}.{size}: must be 1", param=f"{name}.{size}")
