"""Wire types of the management routes."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from jan_serve.dialects.shared.generation_fields import KeepAlive
from jan_serve.dialects.shared.wire_types import WireModel

StatusValue = Literal["unloaded", "loading", "loaded", "unloading", "failed", "downloading"]


class ModelRequest(WireModel):
    model: Annotated[str, Field(min_length=1, max_length=512, description="Its name, or an alias.")]


class LoadRequest(ModelRequest):
    keep_alive: KeepAlive = None
    stream: Annotated[bool, Field(description="Answer with progress events.")] = False
    wait: bool = Field(
        True, description="Answer once it is loaded; false answers at once and loads in the background."
    )


class UnloadRequest(ModelRequest):
    force: Annotated[bool, Field(description="Fail its running requests instead of waiting for them.")] = (
        False
    )


class PullRequest(ModelRequest):
    """A model to download: a name of the catalogue, `org/repo`, `org/repo:QUANT` or `org/repo/file.gguf`."""

    revision: Annotated[str | None, Field(description="Branch, tag or commit of the repository.")] = None
    stream: Annotated[bool, Field(description="Answer with progress events.")] = True


class LoadStage(TypedDict):
    """Progress of a load. value: 0 to 1."""

    stages: list[str]
    current: str
    value: float


class FileProgress(TypedDict):
    done: int
    total: int


class Status(TypedDict):
    """value: the state. failed, reason: why a requested model is not loaded.

    progress: of a load, or of a download by file.
    """

    value: StatusValue
    failed: NotRequired[bool]
    reason: NotRequired[str]
    retry_after_s: NotRequired[float]
    progress: NotRequired[LoadStage | dict[str, FileProgress]]


class Memory(TypedDict):
    """Bytes. total: in the memory budget, estimated while it loads. The others are null until it is loaded.

    weights: of the tensors. read_per_token: weights that a token reads, so only the experts that work for it. kv_cache:
    of the whole context. resident: of the worker process, at its last pulse.
    """

    total: int
    weights: int | None
    read_per_token: int | None
    kv_cache: int | None
    resident: int | None


class Architecture(TypedDict):
    """Input and output of the model."""

    input_modalities: list[str]
    output_modalities: list[str]


class DevicePart(TypedDict):
    """What one device holds. Sizes in bytes; blocks: first and last.

    kind: cpu is main memory; igpu uses it too; rpc is another machine's. allocated: as llama.cpp reports. text: all of
    it for people.
    """

    device: str
    kind: str
    blocks: list[int] | None
    experts: list[int] | None
    output: bool
    weights: int
    cache: int
    compute: int
    allocated: int
    text: str


class Placement(TypedDict):
    """Where a loaded model is. advice: what would make it faster, as sentences."""

    parts: list[DevicePart]
    advice: list[str]


class ManagedModel(TypedDict):
    """A model on disk. Lengths in tokens, sizes in bytes. running, queued: requests that hold it or wait for it.

    ttl_s: seconds until it is unloaded if idle; null is never, or not loaded. lora: adapters by name. enough_for: what
    `jan-serve certify` found last, a sentence for each program.
    """

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    aliases: list[str]
    source: str
    can_remove: bool
    size_bytes: int
    architecture: Architecture
    status: Status
    context_length: int | None
    max_model_len: int | None
    meta: dict[str, Any]
    running: int
    queued: int
    ttl_s: float | None
    pinned: bool
    group: str | None
    lora: list[str]
    memory: Memory | None
    parallel: int | None
    device: str | None
    placement: Placement | None
    enough_for: list[str]


class ManagedModels(TypedDict):
    """default: the model of requests that name none."""

    object: Literal["list"]
    default: str | None
    data: list[ManagedModel]


class FoundModel(TypedDict):
    """A model of another program. id: its name here. reason: why it is unusable."""

    id: str
    program: str
    size_bytes: int
    state: Literal["new", "already here", "unusable"]
    reason: str | None


class FoundModels(TypedDict):
    object: Literal["list"]
    data: list[FoundModel]


class Done(TypedDict):
    """Success. model: the canonical name."""

    success: Literal[True]
    model: str


class Pulled(Done):
    aliases: list[str]
    size_bytes: int


class Deleted(Done):
    """freed_bytes: on disk; deleting a link frees none."""

    freed_bytes: int
