"""Wire types of LMDeploy's disaggregated serving. They never leave this folder. Source: lmdeploy/pytorch/disagg."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import TypedDict

from jan_serve.api.dialects.lmdeploy import limits
from jan_serve.api.shared.wire_types import AtMost, Int, WireModel

Protocol = Annotated[
    Literal[1, 2, 3],
    Field(description="1 TCP, 2 RDMA, 3 NVLINK. Whichever is named, caches travel over TCP here."),
]
SUCCESS = 1
FAIL = 2
TCP = 1


class EngineConfig(WireModel):
    """The layout of an engine. Only its parallelism has to be equal on both sides; sizes are for information."""

    tp_size: Int
    ep_size: Int
    dp_size: Int
    pp_size: Int | None
    dp_rank: Int
    block_size: Int
    num_cpu_blocks: Int
    num_gpu_blocks: Int


class EngineEndpoint(WireModel):
    """Where LMDeploy's engines tell each other that a cache was taken. Here the cache's own connection does that."""

    zmq_address: str


class TransferEndpoint(WireModel):
    """Where caches are fetched: what `/distserve/p2p_initialize` of the other server answered."""

    protocol: Protocol
    endpoint_info: str


class InitializeRequest(WireModel):
    """Tells this server (local) of another one (remote). The ids are the URLs of the two."""

    protocol: Protocol
    local_engine_id: str
    local_engine_config: EngineConfig
    remote_engine_id: str
    remote_engine_config: EngineConfig
    rank: Int | None = None
    tcp_config: dict[str, Any] | None = None
    rdma_config: dict[str, Any] | None = None
    nvlink_config: dict[str, Any] | None = None


class ConnectRequest(WireModel):
    """Gives this server the other one's endpoints."""

    protocol: Protocol
    remote_engine_id: str
    remote_engine_endpoint_info: EngineEndpoint
    remote_kvtransfer_endpoint_info: Annotated[
        list[TransferEndpoint], AtMost(limits.MAX_ENDPOINTS, "remote_kvtransfer_endpoint_info")
    ]


class DropRequest(WireModel):
    """Ends a link."""

    engine_id: str
    remote_engine_id: str


class FreeRequest(WireModel):
    """Names a cache that is kept here. remote_engine_id: this server, as the other one calls it."""

    remote_engine_id: str
    remote_session_id: Int


class MigrationRequest(WireModel):
    """Where the prompt was computed, and what it goes on with.

    remote_block_ids: read and not needed: a cache is fetched whole. is_dummy_prefill: nothing was computed.
    """

    protocol: Protocol = 1
    remote_engine_id: str
    remote_session_id: Int
    remote_block_ids: Annotated[list[Int] | None, AtMost(limits.MAX_PROMPT_TOKENS, "remote_block_ids")] = None
    remote_token_id: Int | None = None
    is_dummy_prefill: bool = False


class MigrationFields(WireModel):
    """What a proxy adds to the body of a generation."""

    with_cache: Annotated[
        bool | None,
        Field(description="The reply says what was computed: `cache_block_ids` and `remote_token_ids`."),
    ] = False
    preserve_cache: Annotated[
        bool | None,
        Field(description="What was computed of the prompt is kept, for another server to go on from."),
    ] = False
    migration_request: Annotated[
        MigrationRequest | None,
        Field(description="Go on from what another server computed of the prompt."),
    ] = None


class InitializeReply(TypedDict):
    """Endpoints for the other server. status: 1 for success."""

    status: int
    engine_endpoint_info: dict[str, str]
    kvtransfer_endpoint_info: list[dict[str, Any]]


class ConnectReply(TypedDict, total=False):
    """status: 1, or 2 where the other server could not be reached; `message` then says why."""

    status: int
    message: str


class DropReply(TypedDict):
    """The link is gone, also where there was none."""

    success: bool


class FreeReply(TypedDict):
    """The cache is gone, also where there was none."""

    status: Literal["SUCCESS"]
