"""Settings of all models (top level) and of one model (its table): how models are loaded and kept."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field, ValidationInfo, field_validator

from jan_serve.config.device_options import DeviceOptions
from jan_serve.config.flags import MEMORY_PANEL, MODEL_PANEL, Flag
from jan_serve.core.kv_types import is_quantised

KvType = Literal["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"]
Pooling = Literal["none", "mean", "cls", "last", "rank"]

KEEP_LOADED: Final = -1.0


class ModelOptions(DeviceOptions):
    """Options of all models, or of one. Frozen. Times are seconds, lengths tokens."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        protected_namespaces=(),
        validate_default=True,
        hide_input_in_errors=True,
        defer_build=True,
    )

    n_ctx: Annotated[
        int | None,
        Field(
            ge=64,
            le=1 << 30,
            description="Context length in tokens, shared by all running sequences. Default: the model's own, as far"
            " as memory allows.",
        ),
        Flag(MODEL_PANEL),
    ] = None
    parallel: Annotated[
        int | None,
        Field(
            ge=1,
            le=256,
            description="Maximum number of running sequences. Default: chosen by the context length.",
        ),
        Flag(MODEL_PANEL),
    ] = None
    pooling: Annotated[
        Pooling | None,
        Field(description="Pooling of embeddings. Default: the model's, else `mean`."),
        Flag(MODEL_PANEL),
    ] = None
    max_tokens_ceiling: Annotated[
        int,
        Field(
            ge=0,
            description="Maximum completion length if a request sets no lower limit. 0 is the context length.",
        ),
        Flag(MODEL_PANEL),
    ] = 0
    ttl_s: Annotated[
        float,
        Field(
            ge=KEEP_LOADED,
            le=31_536_000,
            description="Idle time after which a model is unloaded. -1 keeps it until its memory is needed; 0 unloads"
            " it after each request.",
        ),
        Flag(MODEL_PANEL),
    ] = 600.0

    threads: Annotated[
        int | None,
        Field(ge=1, le=1024, description="CPU threads of the engine. Default: the number of physical cores."),
        Flag(MEMORY_PANEL),
    ] = None
    flash_attn: Annotated[
        Literal["auto", "on", "off"], Field(description="Flash attention."), Flag(MEMORY_PANEL)
    ] = "auto"
    type_k: Annotated[KvType, Field(description="Type of cached keys."), Flag(MEMORY_PANEL)] = "f16"
    type_v: Annotated[
        KvType,
        Field(description="Type of cached values; quantised types require flash attention."),
        Flag(MEMORY_PANEL),
    ] = "f16"
    n_batch: Annotated[
        int, Field(ge=32, le=1 << 20, description="Maximum tokens of one engine step."), Flag(MEMORY_PANEL)
    ] = 2048
    n_ubatch: Annotated[
        int,
        Field(ge=32, le=1 << 20, description="Maximum tokens of one pass through the model."),
        Flag(MEMORY_PANEL),
    ] = 512
    cache_sequences: Annotated[
        int,
        Field(
            ge=0,
            le=256,
            description="Number of finished sequences to keep for reuse of common prefixes.",
        ),
        Flag(MEMORY_PANEL),
    ] = 16
    stream_share: Annotated[
        float | None,
        Field(
            ge=0.05,
            le=0.95,
            description="Share of compute time reserved for streaming answers while prompts or embedding inputs are"
            " processed; less of it processes those sooner. Automatic: beside prompts, by the number of answers and of"
            " prompts, with at most one noticeable pause in 20 tokens; beside embedding inputs, 0.7.",
        ),
        Flag(MEMORY_PANEL),
    ] = None
    idle_cells: Annotated[
        int | None,
        Field(
            ge=0,
            le=1 << 24,
            description="Tokens of finished answers that stay in the KV cache while other answers stream; the rest"
            " moves to RAM. Default: 64, or 1024 if copying is slow. On CPUs each of them costs time in every step.",
        ),
        Flag(MEMORY_PANEL),
    ] = None
    share_prefill: Annotated[
        bool,
        Field(
            description="A prompt that shares a prefix with a prompt in prefill waits for it and reuses the prefix."
        ),
        Flag(MEMORY_PANEL),
    ] = True
    prefer_cached: Annotated[
        bool,
        Field(description="A waiting request whose prompt is cached may overtake a few others."),
        Flag(MEMORY_PANEL),
    ] = True
    jump_forward: Annotated[
        bool,
        Field(description="Skip sampling of text that a schema or grammar fully determines."),
        Flag(MEMORY_PANEL),
    ] = True
    draft_model: Annotated[
        str | None,
        Field(
            min_length=1,
            description="Draft model for speculative decoding: a small model of the same family, by name or file.",
        ),
        Flag(MEMORY_PANEL, metavar="NAME|FILE"),
    ] = None
    prompt_lookup: Annotated[
        Literal["auto", "on", "off"],
        Field(
            description="Speculative decoding with drafts from earlier text: if it pays off (`auto`), always, or never."
        ),
        Flag(MEMORY_PANEL),
    ] = "auto"
    mtp: Annotated[
        Literal["auto", "on", "off"],
        Field(
            description="Speculative decoding with the head for further tokens that the model may have (MTP): on"
            " accelerators if it pays off (`auto`), always, or never. Not beside a draft model."
        ),
        Flag(MEMORY_PANEL),
    ] = "auto"
    cache_ram_mib: Annotated[
        int | None,
        Field(
            ge=0,
            description="Memory for prompts evicted from the KV cache, in MiB; 0 keeps none. Default: a sixteenth of"
            " the memory, at most 2048.",
        ),
        Flag(MEMORY_PANEL),
    ] = None
    cache_disk_mib: Annotated[
        int | None,
        Field(
            ge=0,
            description="Disk space for prompts kept across restarts, in MiB; 0 keeps none. Default: a tenth of the"
            " free space, at most 8192.",
        ),
        Flag(MEMORY_PANEL),
    ] = None
    mmap: Annotated[
        bool, Field(description="Memory-map the weights instead of reading them."), Flag(MEMORY_PANEL)
    ] = True
    mlock: Annotated[bool, Field(description="Lock the weights in physical memory."), Flag(MEMORY_PANEL)] = (
        False
    )
    repack: Annotated[
        bool,
        Field(
            description="Let llama.cpp reorder weights for its kernels, if it has some for this CPU and quantisation."
            " jan-serve's own kernels for x86 CPUs take weights as they are stored."
        ),
        Flag(MEMORY_PANEL),
    ] = True
    huge_pages: Annotated[
        bool,
        Field(description="Request huge pages (Linux): a few percent faster on CPUs."),
        Flag(MEMORY_PANEL),
    ] = True

    @field_validator("type_v")
    @classmethod
    def _check_flash_attention(cls, type_v: KvType, others: ValidationInfo) -> KvType:
        if is_quantised(type_v) and others.data.get("flash_attn") == "off":
            raise ValueError(
                "must be f32, f16 or bf16 where flash_attn is off: quantised values require flash attention"
            )
        return type_v
