"""Settings of all models (top level) and of one model (its table): how models are loaded and kept."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field, ValidationInfo, field_validator

from jan_serve.config.device_options import DeviceOptions
from jan_serve.config.flags import MEMORY_PANEL, MODEL_PANEL, setting
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

    n_ctx: Annotated[int | None, Field(ge=64, le=1 << 30)] = setting(
        None,
        MODEL_PANEL,
        "Context length in tokens, shared by all running sequences. Default: the model's own, as far"
        " as memory allows.",
    )
    parallel: Annotated[int | None, Field(ge=1, le=256)] = setting(
        None, MODEL_PANEL, "Maximum number of running sequences. Default: chosen by the context length."
    )
    pooling: Pooling | None = setting(
        None, MODEL_PANEL, "Pooling of embeddings. Default: the model's, else `mean`."
    )
    max_tokens_ceiling: Annotated[int, Field(ge=0)] = setting(
        0, MODEL_PANEL, "Maximum completion length if a request sets no lower limit. 0 is the context length."
    )
    ttl_s: Annotated[float, Field(ge=KEEP_LOADED, le=31_536_000)] = setting(
        600.0,
        MODEL_PANEL,
        "Idle time after which a model is unloaded. -1 keeps it until its memory is needed; 0 unloads"
        " it after each request.",
    )

    threads: Annotated[int | None, Field(ge=1, le=1024)] = setting(
        None, MEMORY_PANEL, "CPU threads of the engine. Default: the number of physical cores."
    )
    flash_attn: Literal["auto", "on", "off"] = setting("auto", MEMORY_PANEL, "Flash attention.")
    type_k: KvType = setting("f16", MEMORY_PANEL, "Type of cached keys.")
    type_v: KvType = setting(
        "f16", MEMORY_PANEL, "Type of cached values; quantised types require flash attention."
    )
    n_batch: Annotated[int, Field(ge=32, le=1 << 20)] = setting(
        2048, MEMORY_PANEL, "Maximum tokens of one engine step."
    )
    n_ubatch: Annotated[int, Field(ge=32, le=1 << 20)] = setting(
        512, MEMORY_PANEL, "Maximum tokens of one pass through the model."
    )
    cache_sequences: Annotated[int, Field(ge=0, le=256)] = setting(
        16, MEMORY_PANEL, "Number of finished sequences to keep for reuse of common prefixes."
    )
    stream_share: Annotated[float | None, Field(ge=0.05, le=0.95)] = setting(
        None,
        MEMORY_PANEL,
        "Share of compute time reserved for streaming answers while prompts or embedding inputs are"
        " processed; less of it processes those sooner. Automatic: beside prompts, by the number of answers and of"
        " prompts, with at most one noticeable pause in 20 tokens; beside embedding inputs, 0.7.",
    )
    idle_cells: Annotated[int | None, Field(ge=0, le=1 << 24)] = setting(
        None,
        MEMORY_PANEL,
        "Tokens of finished answers that stay in the KV cache while other answers stream; the rest"
        " moves to RAM. Default: 64, or 1024 if copying is slow. On CPUs each of them costs time in every step.",
    )
    share_prefill: bool = setting(
        True,
        MEMORY_PANEL,
        "A prompt that shares a prefix with a prompt in prefill waits for it and reuses the prefix.",
    )
    prefer_cached: bool = setting(
        True, MEMORY_PANEL, "A waiting request whose prompt is cached may overtake a few others."
    )
    jump_forward: bool = setting(
        True, MEMORY_PANEL, "Skip sampling of text that a schema or grammar fully determines."
    )
    draft_model: Annotated[str | None, Field(min_length=1)] = setting(
        None,
        MEMORY_PANEL,
        "Draft model for speculative decoding: a small model of the same family, by name or file.",
        metavar="NAME|FILE",
    )
    prompt_lookup: Literal["auto", "on", "off"] = setting(
        "auto",
        MEMORY_PANEL,
        "Speculative decoding with drafts from earlier text: if it pays off (`auto`), always, or never.",
    )
    mtp: Literal["auto", "on", "off"] = setting(
        "auto",
        MEMORY_PANEL,
        "Speculative decoding with the head for further tokens that the model may have (MTP): on"
        " accelerators if it pays off (`auto`), always, or never. Not beside a draft model.",
    )
    cache_ram_mib: Annotated[int | None, Field(ge=0)] = setting(
        None,
        MEMORY_PANEL,
        "Memory for prompts evicted from the KV cache, in MiB; 0 keeps none. Default: a sixteenth of"
        " the memory, at most 2048.",
    )
    cache_disk_mib: Annotated[int | None, Field(ge=0)] = setting(
        None,
        MEMORY_PANEL,
        "Disk space for prompts kept across restarts, in MiB; 0 keeps none. Default: a tenth of the"
        " free space, at most 8192.",
    )
    mmap: bool = setting(True, MEMORY_PANEL, "Memory-map the weights instead of reading them.")
    mlock: bool = setting(False, MEMORY_PANEL, "Lock the weights in physical memory.")
    repack: bool = setting(
        True,
        MEMORY_PANEL,
        "Let llama.cpp reorder weights for its kernels, if it has some for this CPU and quantisation."
        " jan-serve's own kernels for x86 CPUs take weights as they are stored.",
    )
    huge_pages: bool = setting(
        True, MEMORY_PANEL, "Request huge pages (Linux): a few percent faster on CPUs."
    )

    @field_validator("type_v")
    @classmethod
    def _check_flash_attention(cls, type_v: KvType, others: ValidationInfo) -> KvType:
        if is_quantised(type_v) and others.data.get("flash_attn") == "off":
            raise ValueError(
                "must be f32, f16 or bf16 where flash_attn is off: quantised values require flash attention"
            )
        return type_v
