"""Every value that crosses the worker pipe, and nothing else.

Front to worker: LoadModel once, then any of EngineRequest, EmbedRequest, TokenizeRequest, DetokenizeRequest,
AbortRequest, ReadState, StoreState, DropState, PingRequest, ShutdownRequest. Worker to front: LoadProgress*, then Ready
or LoadFailed; then one Step per engine step (the events of all requests of that step) and the direct answers.
Request ids are chosen by the front and are unique within one worker process.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from jan_serve.core.constraint import CompiledGrammar
from jan_serve.core.engine_stats import EngineStats
from jan_serve.core.events import FinishReason, Timings, TokenInfo
from jan_serve.core.guide import Guide
from jan_serve.core.model_facts import ModelFacts
from jan_serve.core.sampling import SamplingParams, StopConditions

PROTOCOL_VERSION = 1


class AdapterFile(msgspec.Struct, frozen=True, kw_only=True):
    """A LoRA adapter to load with the model. path: absolute. scale: of requests that say none."""

    name: str
    path: str
    scale: float = 1.0


class AdapterUse(msgspec.Struct, frozen=True, order=True, array_like=True):
    """The adapter at this place among those of the model, applied with this scale, which is not 0."""

    place: int
    scale: float


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker loads its model. None means "decide from the model and the machine".

    n_ctx: KV cells shared by all sequences, and the longest single sequence. parallel: sequences that run at once.
    n_batch: tokens of one step at most. n_gpu_layers: -1 all, None fits the free device memory.
    cache_sequences: finished sequences kept as prefix cache.
    draft_path: a GGUF of the same vocabulary that writes drafts.
    prompt_lookup: drafts from what was said before: where that pays (auto), wherever there is one (on), or none.
    cache_ram_bytes, cache_disk_bytes: for states of sequences that left the KV cache, 0 none; the files go below
    cache_dir, without which there are none. cache_ram_most: the first of them is no larger, whatever it says.
    state_bytes: memory for states of sequences on their way from or to other servers.
    context_bytes: what the KV cache may take at most where n_ctx is None; None is a part of what is free.
    layer_bytes, other_bytes: tensor sizes from the GGUF header (per block; the rest), for the offload decision.
    n_ctx_train, k_elements, v_elements: from there too; the length that it was trained for, and what one token takes in
    the KV cache, over all blocks.
    step_target_s: prefill chunks beside running streams are cut so that a step stays near this time; 0 cuts nothing.
    stream_share, prefill_tiles: see engine.pacing. idle_cells: see engine.sequence_memory.
    share_prefill, prefer_cached: see engine.scheduler. jump_forward: text that a grammar forces is not sampled.
    max_tokens_ceiling: completions end with `length` there even if the request set no limit. 0 is the context.
    """

    n_ctx: int | None = None
    parallel: int | None = None
    n_batch: int = 512
    n_ubatch: int = 512
    threads: int | None = None
    n_gpu_layers: int | None = None
    device: str | None = None
    flash_attn: Literal["auto", "on", "off"] = "auto"
    type_k: str = "f16"
    type_v: str = "f16"
    use_mmap: bool = True
    use_repack: bool = True
    huge_pages: bool = True
    use_mlock: bool = False
    pooling: Literal["none", "mean", "cls", "last", "rank"] | None = None
    cache_sequences: int = 16
    draft_path: str | None = None
    prompt_lookup: Literal["auto", "on", "off"] = "off"
    cache_ram_bytes: int | None = None
    cache_disk_bytes: int | None = None
    cache_dir: str | None = None
    cache_ram_most: int | None = None
    step_target_s: float = 0.1
    stream_share: float = 0.7
    prefill_tiles: bool = True
    idle_cells: int | None = None
    share_prefill: bool = True
    prefer_cached: bool = True
    jump_forward: bool = True
    max_tokens_ceiling: int = 0
    state_bytes: int = 2 << 30
    context_bytes: int | None = None
    layer_bytes: tuple[int, ...] = ()
    other_bytes: int = 0
    n_ctx_train: int = 0
    k_elements: int = 0
    v_elements: int = 0
    adapters: tuple[AdapterFile, ...] = ()


class LoadModel(msgspec.Struct, frozen=True, kw_only=True, tag="load"):
    """The first frame a worker gets."""

    path: str
    settings: EngineSettings = EngineSettings()
    protocol: int = PROTOCOL_VERSION


class ResumeState(msgspec.Struct, frozen=True):
    """The id of a state that is here, and the token that follows it (None: whichever the state says)."""

    state: int
    token: int | None = None


class EngineRequest(msgspec.Struct, frozen=True, kw_only=True, tag="generate"):
    """Run `n` sequences from one prompt. The worker tokenises; it never sees a template or a schema.

    prompt: pieces in order; text pieces are tokenised (special tokens parsed where parse_special), id pieces are used
    as they are. add_special: BOS/EOS are added as the GGUF says; a BOS that the text brought is not doubled.
    prompt_param: the request field that errors about the prompt name. guide: in place of `grammar`, where only part of
    the answer is held to one. visible_specials: control tokens, by their text, that stay in the text all the same.
    adapters: LoRA adapters that apply, each once, in order.
    keep_state: what was computed of the only sequence is kept under the request's id (StateKept), until DropState.
    resume: go on from a state that StoreState brought; the prompt must be that state's.
    vocabulary_entries: tokens, where they are sent, come with their entries.
    cache_salt: only requests with the same one share prefixes with it, in memory and on disk.
    """

    id: int
    prompt: tuple[str | tuple[int, ...], ...]
    add_special: bool = True
    parse_special: bool = True
    prompt_param: str = "prompt"
    sampling: SamplingParams = SamplingParams()
    stopping: StopConditions = StopConditions()
    grammar: CompiledGrammar | None = None
    guide: Guide | None = None
    n: int = 1
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    return_tokens: bool = False
    skip_special_tokens: bool = True
    visible_specials: tuple[str, ...] = ()
    adapters: tuple[AdapterUse, ...] = ()
    keep_state: bool = False
    resume: ResumeState | None = None
    vocabulary_entries: bool = False
    cache_salt: str = ""


class EmbedRequest(msgspec.Struct, frozen=True, kw_only=True, tag="embed"):
    """Embed each input; answered by Embedded or Failed. normalize: L2, over the last axis.

    parse_special: special tokens that are written in texts are meant.
    """

    id: int
    inputs: tuple[str | tuple[int, ...], ...]
    normalize: bool = True
    adapters: tuple[AdapterUse, ...] = ()
    parse_special: bool = False


class TokenizeRequest(msgspec.Struct, frozen=True, kw_only=True, tag="tokenize"):
    """Answered by Tokenized. with_pieces: the bytes of every token as well."""

    id: int
    text: str
    add_special: bool = True
    parse_special: bool = True
    with_pieces: bool = False


class DetokenizeRequest(msgspec.Struct, frozen=True, kw_only=True, tag="detokenize"):
    """Answered by Detokenized, or by Failed when an id is outside the vocabulary."""

    id: int
    tokens: tuple[int, ...]
    skip_special_tokens: bool = True


class AbortRequest(msgspec.Struct, frozen=True, tag="abort"):
    """Forget this request: no event of it follows. Unknown ids are ignored (it may just have ended)."""

    id: int


class ReadState(msgspec.Struct, frozen=True, kw_only=True, tag="read_state"):
    """A part of the state that a EngineRequest with this id kept. Answered by StatePart or Failed."""

    id: int
    state: int
    offset: int
    length: int


class StoreState(msgspec.Struct, frozen=True, kw_only=True, tag="store_state"):
    """The next part of a state from elsewhere, which becomes `state` once all `total` bytes are here and were checked.

    Answered by StateStored or Failed.
    """

    id: int
    state: int
    offset: int
    total: int
    data: bytes


class DropState(msgspec.Struct, frozen=True, tag="drop_state"):
    """Forget a state, kept or brought. Unknown ones are ignored."""

    state: int


class PingRequest(msgspec.Struct, frozen=True, tag="ping"):
    """Answered by Pong at once, also during a decode."""

    nonce: int


class ShutdownRequest(msgspec.Struct, frozen=True, tag="shutdown"):
    """End the process now. Closing the pipe does the same."""


WorkerRequest = (
    LoadModel
    | EngineRequest
    | EmbedRequest
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
    """Part of the weights that is loaded, 0 to 1."""

    fraction: float


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The model is loaded; requests are accepted from now on."""

    facts: ModelFacts


class LoadFailed(msgspec.Struct, frozen=True, kw_only=True, tag="load_failed"):
    """The model could not be loaded: an error of the `errors` tree as code and payload. The process ends after it."""

    code: str
    payload: dict[str, Any]


class Accepted(msgspec.Struct, frozen=True, tag="accepted"):
    """The request was checked and queued: from now on it fails only with the engine."""

    id: int
    prompt_tokens: int


class PromptScored(msgspec.Struct, frozen=True, tag="prompt_scored"):
    """The prompt's tokens with log-probabilities, once, before the first Chunk of the request."""

    id: int
    tokens: tuple[TokenInfo, ...]


class Chunk(msgspec.Struct, frozen=True, tag="chunk"):
    """More text of sequence `index`, with its tokens when they were asked for. Text is whole characters."""

    id: int
    index: int
    text: str
    tokens: tuple[TokenInfo, ...] = ()


class StateKept(msgspec.Struct, frozen=True, kw_only=True, tag="state_kept"):
    """Before the end of a request with `keep_state`: tokens that the state covers, and the token behind them."""

    id: int
    tokens: int
    next_token: int


class SequenceFinished(msgspec.Struct, frozen=True, kw_only=True, tag="finished"):
    """One sequence of a request ended. Fields as in core.events.Finished."""

    id: int
    index: int
    reason: FinishReason
    completion_tokens: int
    stop: str | None = None
    eos: bool = False
    mean_logprob: float | None = None
    seed: int | None = None
    reasoning_tokens: int = 0
    end_token: TokenInfo | None = None


class RequestCompleted(msgspec.Struct, frozen=True, kw_only=True, tag="completed"):
    """All sequences of a request ended. cached_tokens: prompt tokens that came from the prefix cache."""

    id: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    timings: Timings


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """The request ended with an error of the `errors` tree."""

    id: int
    code: str
    payload: dict[str, Any]


EngineEvent = Accepted | PromptScored | Chunk | StateKept | SequenceFinished | RequestCompleted | Failed


class Step(msgspec.Struct, frozen=True, tag="step"):
    """Everything that one engine step produced, in one frame."""

    events: tuple[EngineEvent, ...]


class Embedded(msgspec.Struct, frozen=True, kw_only=True, tag="embedded"):
    """One vector per input: little-endian float32, `dimensions` each (one score each with rank pooling)."""

    id: int
    vectors: tuple[bytes, ...]
    dimensions: int
    prompt_tokens: int


class Tokenized(msgspec.Struct, frozen=True, tag="tokenized"):
    """Token ids, and their bytes when asked for."""

    id: int
    tokens: tuple[int, ...]
    pieces: tuple[bytes, ...] = ()


class Detokenized(msgspec.Struct, frozen=True, tag="detokenized"):
    """Text of token ids; bytes that are not UTF-8 became U+FFFD."""

    id: int
    text: str


class StatePart(msgspec.Struct, frozen=True, kw_only=True, tag="state_part"):
    """Bytes of a kept state from the offset asked for; `total` is the size of all of it."""

    id: int
    data: bytes
    total: int


class StateStored(msgspec.Struct, frozen=True, tag="state_stored"):
    """So many bytes of a state are here."""

    id: int
    received: int


class Pong(msgspec.Struct, frozen=True, kw_only=True, tag="pong"):
    """The worker's pulse. `phase` since `phase_s` seconds; `phase_id` is the request being sampled for, if one is.

    A phase other than idle whose `phase_s` keeps growing is a stall.
    """

    nonce: int
    phase: Literal["loading", "idle", "decode", "sample", "embed", "other"]
    phase_s: float
    phase_id: int | None = None
    stats: EngineStats = EngineStats()


WorkerEvent = (
    LoadProgress
    | Ready
    | LoadFailed
    | Step
    | Failed
    | Embedded
    | Tokenized
    | Detokenized
    | StatePart
    | StateStored
    | Pong
)
