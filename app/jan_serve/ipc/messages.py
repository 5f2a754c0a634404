"""The messages of the worker pipe.

A worker gets LoadModel once, and answers LoadProgress*, then ModelFacts or LoadFailed. Then it sends one Step per
engine step (the events of all its requests) and the direct answers. Request ids are chosen by the front and are unique
within it: a request keeps its id in the next worker.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from jan_serve.core.constraint import Guide
from jan_serve.core.engine_stats import EngineStats
from jan_serve.core.events import EngineWork, Finished, Progress, PromptTokens, TextDelta, Timings
from jan_serve.core.messages import PromptPiece
from jan_serve.core.models import ModelFacts
from jan_serve.core.placement import ModelParts, PlacementOptions
from jan_serve.core.request import SamplingParams, StopConditions
from jan_serve.ipc.scoring import AdapterUse as AdapterUse
from jan_serve.ipc.scoring import Embedded, EmbedRequest, OptionsWeighed, Query, RankRequest, WeighOptions

PROTOCOL_VERSION = 1


DraftMode = Literal["auto", "on", "off"]  # drafts: `auto`: if they pay off by the measured time of steps


class AdapterFile(msgspec.Struct, frozen=True, kw_only=True):
    """A LoRA adapter to load with the model. path: absolute. scale: the default of requests."""

    name: str
    path: str
    scale: float = 1.0


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker loads its model and paces its steps. None: decided from the model and the machine.

    n_ctx: KV cells shared by all sequences, and the longest single sequence. parallel: sequences that run at once.
    n_batch: max tokens of a step.
    cache_sequences: finished sequences kept as prefix cache.
    draft_path: a GGUF of the same vocabulary, as draft model.
    projector: a GGUF (mmproj) through which the model sees or hears. projector_required: without it the load fails;
    else the model is served for text only.
    prompt_lookup: drafts from earlier text: if they pay off (auto), always (on), or never.
    mtp: drafts with the model's own head for further tokens, if it has one: the same. unused_heads: why heads that the
    model has do not draft; "" if they do, or it has none.
    cache_ram_bytes, cache_disk_bytes: for states of sequences evicted from the KV cache; 0: none. cache_dir: folder of
    their files and of the vocabulary's tokens; None: no files. cache_ram_most: upper limit of cache_ram_bytes.
    state_bytes: memory for states in transfer from or to other servers.
    context_bytes: max size of the KV cache if n_ctx is None; None: a share of the free memory.
    parts: sizes from the GGUF header; placement: what the user decides of the devices they go to.
    rpc: HOST:PORT of other machines that lend devices.
    n_ctx_train, k_elements, v_elements: from the header; the trained length, and the elements of one token in the KV
    cache over all blocks.
    stream_share: see engine.scheduling.step_planner. idle_cells: see engine.cache.cell_allocator.
    share_prefill, prefer_cached: see engine.scheduling.scheduler. jump_forward: forced text is not sampled.
    max_tokens_ceiling: max tokens of any completion; 0: only the context limits it.
    deterministic: answers do not depend on other requests, on a CPU, with weights of any type.
    """

    n_ctx: int | None = None
    grow_context: bool = False
    parallel: int | None = None
    n_batch: int = 512
    n_ubatch: int = 512
    threads: int | None = None
    device: str | None = None
    flash_attn: Literal["auto", "on", "off"] = "auto"
    type_k: str = "f16"
    type_v: str = "f16"
    use_mmap: bool = True
    use_repack: bool = True
    deterministic: bool = False
    huge_pages: bool = True
    use_mlock: bool = False
    pooling: Literal["none", "mean", "cls", "last", "rank"] | None = None
    cache_sequences: int = 16
    draft_path: str | None = None
    projector: str | None = None
    projector_required: bool = False
    prompt_lookup: DraftMode = "off"
    mtp: DraftMode = "off"
    unused_heads: str = ""
    cache_ram_bytes: int | None = None
    cache_disk_bytes: int | None = None
    cache_dir: str | None = None
    cache_ram_most: int | None = None
    stream_share: float | None = None
    idle_cells: int | None = None
    share_prefill: bool = True
    prefer_cached: bool = True
    jump_forward: bool = True
    max_tokens_ceiling: int = 0
    state_bytes: int = 2 << 30
    context_bytes: int | None = None
    parts: ModelParts = ModelParts()
    placement: PlacementOptions = PlacementOptions()
    rpc: tuple[str, ...] = ()
    n_ctx_train: int = 0
    k_elements: int = 0
    v_elements: int = 0
    adapters: tuple[AdapterFile, ...] = ()


class LoadModel(msgspec.Struct, frozen=True, kw_only=True, tag="load"):
    """The first frame to a worker."""

    path: str
    settings: EngineSettings = EngineSettings()
    protocol: int = PROTOCOL_VERSION


class ResumeState(msgspec.Struct, frozen=True):
    """A received state by id. token: expected next token of the state; None: any."""

    state: int
    token: int | None = None


class WrittenChoice(msgspec.Struct, frozen=True, kw_only=True):
    """What an earlier worker sent of one choice.

    tokens: their ids; without them the choice is sampled again, and the text that was sent is left out. characters: of
    the text. draws: random numbers that its sampler used for `tokens`. sum_logprob: of `tokens`. finished: the choice
    has ended; num_tokens: how many tokens it has.
    """

    tokens: tuple[int, ...] = ()
    num_tokens: int = 0
    characters: int = 0
    draws: int = 0
    sum_logprob: float = 0.0
    finished: bool = False


class WrittenParts(msgspec.Struct, frozen=True, kw_only=True):
    """What an earlier worker sent of an answer. Choices that have not ended go on after their last token.

    waited_s: from the request to the first token, or until now. decoded_s: since the first token.
    """

    choices: tuple[WrittenChoice, ...]
    waited_s: float = 0.0
    decoded_s: float | None = None


class EngineRequest(msgspec.Struct, frozen=True, kw_only=True, tag="generate"):
    """Run `n` sequences from one prompt. The worker tokenises; it never sees a template or a schema.

    prompt: pieces in order; texts are tokenised (special tokens parsed if parse_special), ids are used unchanged, and
    images are placed with the marks that the model knows.
    add_special: add BOS/EOS as the GGUF says; a BOS in the text is not doubled.
    prompt_param: field name in errors about the prompt. guide: constrains the answer, or parts of it.
    visible_specials: control tokens, by their text, that stay in the text despite skip_special_tokens.
    adapters: LoRA adapters to apply, each once, in order.
    keep_state: keep the state of the only sequence under the request's id (StateKept) until DropState.
    resume: continue from a state of StoreState; the prompt must be that state's.
    reports_progress: RequestProgressed after each step of the prompt, and with each piece of text.
    vocabulary_entries: returned tokens include their vocabulary entries.
    cache_salt: prefixes are shared, in memory and on disk, only among requests with the same salt.
    client: whose request it is, here and below; see core.caller.
    background: it is computed while no other request can be.
    written: go on with an answer that another worker began.
    """

    id: int
    prompt: tuple[PromptPiece, ...]
    add_special: bool = True
    parse_special: bool = True
    prompt_param: str = "prompt"
    sampling: SamplingParams = SamplingParams()
    stopping: StopConditions = StopConditions()
    guide: Guide | None = None
    n: int = 1
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    return_tokens: bool = False
    reports_progress: bool = False
    skip_special_tokens: bool = True
    visible_specials: tuple[str, ...] = ()
    adapters: tuple[AdapterUse, ...] = ()
    keep_state: bool = False
    resume: ResumeState | None = None
    vocabulary_entries: bool = False
    cache_salt: str
    client: str = ""
    background: bool = False
    written: WrittenParts | None = None


class MediaData(msgspec.Struct, frozen=True, kw_only=True, tag="media_data"):
    """The next bytes of the images or sounds of this digest, for the request `id`, which follows without them. See
    ipc.media_frames."""

    id: int
    digest: str
    data: bytes


class Counted(msgspec.Struct, frozen=True, tag="counted"):
    """tokens: cells of the context that the prompt takes."""

    id: int
    tokens: int


class CountRequest(Query[Counted], frozen=True, kw_only=True, tag="count"):
    """Count the tokens of a prompt, as EngineRequest has it; images need no pixels."""

    prompt: tuple[PromptPiece, ...]
    add_special: bool = True
    parse_special: bool = True
    prompt_param: str = "prompt"


class Tokenized(msgspec.Struct, frozen=True, tag="tokenized"):
    """A part of the answer, small enough that writing it holds nobody up; the client puts the parts together.

    pieces: the bytes of each token, on request.
    """

    id: int
    tokens: list[int]
    pieces: list[bytes] = []
    is_last: bool = True


class TokenizeRequest(Query[Tokenized], frozen=True, kw_only=True, tag="tokenize"):
    """with_pieces: include the bytes of every token."""

    text: str
    add_special: bool = True
    parse_special: bool = True
    with_pieces: bool = False


class Detokenized(msgspec.Struct, frozen=True, tag="detokenized"):
    """Invalid UTF-8 is replaced by U+FFFD."""

    id: int
    text: str


class DetokenizeRequest(Query[Detokenized], frozen=True, kw_only=True, tag="detokenize"):
    """Fails if an id is outside the vocabulary."""

    tokens: tuple[int, ...]
    skip_special_tokens: bool = True


class AbortRequest(msgspec.Struct, frozen=True, tag="abort"):
    """Abort a request: no event of it follows. Unknown ids are ignored (it may just have ended)."""

    id: int


class StatePart(msgspec.Struct, frozen=True, kw_only=True, tag="state_part"):
    """Bytes of a kept state from the requested offset. total: size of the whole state."""

    id: int
    data: bytes
    total: int


class ReadState(Query[StatePart], frozen=True, kw_only=True, tag="read_state"):
    """Read a part of the state kept under the request id `state`."""

    state: int
    offset: int
    length: int


class StateStored(msgspec.Struct, frozen=True, tag="state_stored"):
    """received: bytes of the state so far."""

    id: int
    received: int


class StoreState(Query[StateStored], frozen=True, kw_only=True, tag="store_state"):
    """The next part of another server's state, usable as `state` once all `total` bytes are received and verified."""

    state: int
    offset: int
    total: int
    data: bytes


class DropState(msgspec.Struct, frozen=True, tag="drop_state"):
    """Drop a state, kept or received. Unknown ids are ignored."""

    state: int


class PingRequest(msgspec.Struct, frozen=True, tag="ping"):
    """Answered by Pong at once, also during a decode."""

    nonce: int


class ShutdownRequest(msgspec.Struct, frozen=True, tag="shutdown"):
    """Save the cache and end the process. Closing the pipe ends it without saving."""


WorkerRequest = (
    LoadModel
    | EngineRequest
    | MediaData
    | EmbedRequest
    | RankRequest
    | WeighOptions
    | CountRequest
    | TokenizeRequest
    | DetokenizeRequest
    | AbortRequest
    | ReadState
    | StoreState
    | DropState
    | PingRequest
    | ShutdownRequest
)


class LoadProgress(msgspec.Struct, frozen=True, tag="load_progress"):
    """Loaded fraction of the weights, 0 to 1."""

    fraction: float


class ContextGrown(msgspec.Struct, frozen=True, tag="context_grown"):
    """The context of the model is longer from now on. kv_bytes: of its cells."""

    n_ctx: int
    kv_bytes: int


class LoadFailed(msgspec.Struct, frozen=True, kw_only=True, tag="load_failed"):
    """Code and payload of an error of the `errors` tree. The process ends after it."""

    code: str
    payload: dict[str, Any]


class Accepted(msgspec.Struct, frozen=True, tag="accepted"):
    """The request is valid and queued: from now on only an engine failure fails it."""

    id: int
    prompt_tokens: int


class RequestProgressed(Progress, frozen=True, kw_only=True, tag="progressed"):
    """Comes before the Chunk or SequenceFinished that it is about."""

    id: int


class PromptScored(PromptTokens, frozen=True, kw_only=True, tag="prompt_scored"):
    """Comes once, before the first Chunk of the request."""

    id: int


class Chunk(TextDelta, frozen=True, kw_only=True, tag="chunk"):
    """More text of sequence `index`.

    ids: all tokens since the last chunk, or those of `tokens`. draws: random numbers used up to the last one of them.
    """

    id: int
    ids: tuple[int, ...] = ()
    draws: int = 0


class StateKept(msgspec.Struct, frozen=True, kw_only=True, tag="state_kept"):
    """The state of a request with `keep_state` is kept. tokens: number in the state. next_token: the one after them."""

    id: int
    tokens: int
    next_token: int


class SequenceFinished(Finished, frozen=True, kw_only=True, tag="finished"):
    """One sequence of a request ended."""

    id: int


class RequestCompleted(msgspec.Struct, frozen=True, kw_only=True, tag="completed"):
    """All sequences of a request ended. cached_tokens: prompt tokens that came from the prefix cache."""

    id: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    timings: Timings
    work: EngineWork = msgspec.field(default_factory=EngineWork)


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """The request failed: code and payload of an error of the `errors` tree."""

    id: int
    code: str
    payload: dict[str, Any]


EngineEvent = (
    Accepted
    | RequestProgressed
    | PromptScored
    | Chunk
    | StateKept
    | SequenceFinished
    | RequestCompleted
    | Failed
)


class Step(msgspec.Struct, frozen=True, tag="step"):
    """All events of one engine step."""

    events: tuple[EngineEvent, ...]


class Pong(msgspec.Struct, frozen=True, kw_only=True, tag="pong"):
    """The engine thread has been in `phase` for `phase_s` seconds; while it is idle, the intake thread.

    phase_id: the request it works for, if known.

    A phase other than idle whose `phase_s` keeps growing is a stall.
    """

    nonce: int
    phase: Literal["loading", "idle", "decode", "sample", "embed", "encode", "tokenize", "other"]
    phase_s: float
    phase_id: int | None = None
    stats: EngineStats = EngineStats()


WorkerEvent = (
    LoadProgress
    | ModelFacts
    | LoadFailed
    | ContextGrown
    | Step
    | Failed
    | Embedded
    | OptionsWeighed
    | Counted
    | Tokenized
    | Detokenized
    | StatePart
    | StateStored
    | Pong
)
