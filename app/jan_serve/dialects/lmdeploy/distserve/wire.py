"""Wire types of LMDeploy's disaggregated serving. Source: lmdeploy/pytorch/disagg."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import TypedDict

from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.wire_types import AtMost, Int, LaxModel

Protocol = Annotated[
    Literal[1, 2, 3],
    Field(description="1 TCP, 2 RDMA, 3 NVLINK. Caches always travel over TCP here."),
]
_MAX_ENDPOINTS = 64
SUCCESS = 1
FAIL = 2
TCP = 1


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
        bool | None,
        Field(description="Add `cache_block_ids` and `remote_token_ids` to the reply."),
    ] = False
    preserve_cache: Annotated[
        bool | None,
        Field(description="Preserve the computed prompt, so that another server can continue from it."),
    ] = False
    migration_request: Annotated[
        MigrationRequest | None,
        Field(description="Continue from a prompt that another server computed."),
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
