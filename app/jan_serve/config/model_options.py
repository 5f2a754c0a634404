"""Settings of all models (top level) and of one model (its table), and what a worker gets of them."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator

from jan_serve.config.fields import memory_setting, model_setting
from jan_serve.core.placement import PlacementOptions, is_quantised, parse_override
from jan_serve.core.request import LoopAction
from jan_serve.ipc.messages import EngineSettings
from jan_serve.placement.workload import why_unused
from jan_serve.store.gguf.model_file import ModelFile, read_model_parts


def _numbers(value: object) -> object:
    """`3,1` as a list, also as the only value of a repeatable flag."""
    texts = [value] if isinstance(value, str) else value
    if isinstance(texts, list | tuple) and all(isinstance(text, str) for text in texts):  # pyright: ignore[reportUnknownVariableType]
        return [item for text in texts for item in re.split(r"[,/]", text) if item.strip()]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return value  # pyright: ignore[reportUnknownVariableType]


def _one(value: object) -> object:
    """A pattern may hold commas, so a text is one of them."""
    return [value] if isinstance(value, str) else value


class DeviceOptions(BaseModel):
    """Devices of all models, or of one."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    n_gpu_layers: Literal["auto", "all"] | Annotated[int, Field(ge=0, le=10_000)] = memory_setting(
        "auto",
        "Layers on the accelerators: `auto` (as many as fit their free memory), `all`, or a number,"
        " counted from the output layer and the last block.",
        metavar="auto|all|N",
    )
    device: Annotated[str | None, Field(min_length=1)] = memory_setting(
        None, "Device to use, by its name in `jan-serve doctor`; `cpu` uses no accelerator."
    )
    n_cpu_moe: Annotated[int | None, Field(ge=0, le=10_000)] = memory_setting(
        None,
        "Blocks, from the first, whose experts (of a mixture) stay in main memory. Default: as few as"
        " the accelerators' free memory allows.",
    )
    tensor_split: Annotated[
        tuple[Annotated[float, Field(ge=0, le=1e9)], ...], BeforeValidator(_numbers), Field(max_length=64)
    ] = memory_setting(
        (),
        "Proportions of layers on each accelerator, in the order of `jan-serve doctor`, as `3,1`."
        " Default: decided by memory and speed.",
        metavar="N,N…",
    )
    split_mode: Literal["none", "layer", "row"] = memory_setting(
        "layer",
        "Several accelerators: each has some layers (`layer`), each has rows of every layer (`row`), or"
        " only `main_gpu` is used (`none`).",
    )
    main_gpu: Annotated[int, Field(ge=0, le=63)] = memory_setting(
        0, "Index of the only accelerator (`split_mode` `none`), or of the one for small tensors (`row`)."
    )
    override_tensor: Annotated[
        tuple[Annotated[str, Field(min_length=3, max_length=500)], ...],
        BeforeValidator(_one),
        Field(max_length=64),
    ] = memory_setting(
        (),
        "Tensors whose names match a regular expression go to this device; `CPU` is main memory.",
        metavar="REGEX=DEVICE",
    )
    require_accelerator: bool = memory_setting(
        False, "Fail to load a model rather than run all of it on the CPU."
    )

    @field_validator("override_tensor")
    @classmethod
    def _check_patterns(cls, overrides: tuple[str, ...]) -> tuple[str, ...]:
        for text in overrides:
            parse_override(text)
        return overrides


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

    n_ctx: Annotated[int | None, Field(ge=64, le=1 << 30)] = model_setting(
        None,
        "Context length in tokens, shared by all running sequences. Default: the model's own, as far"
        " as memory allows.",
    )
    grow_context: bool = model_setting(
        False,
        "A prompt that does not fit makes the context longer, up to the length that the model was trained for, as far"
        " as memory allows; running answers go on, and nothing is read again.",
    )
    parallel: Annotated[int | None, Field(ge=1, le=256)] = model_setting(
        None, "Maximum number of running sequences. Default: chosen by the context length."
    )
    pooling: Pooling | None = model_setting(None, "Pooling of embeddings. Default: the model's, else `mean`.")
    max_tokens_ceiling: Annotated[int, Field(ge=0)] = model_setting(
        0, "Maximum completion length if a request sets no lower limit. 0 is the context length."
    )
    ttl_s: Annotated[float, Field(ge=KEEP_LOADED, le=31_536_000)] = model_setting(
        600.0,
        "Idle time after which a model is unloaded. -1 keeps it until its memory is needed; 0 unloads"
        " it after each request.",
    )
    stop_loops: LoopAction = model_setting(
        "off",
        "What becomes of an answer that repeats its end again and again: `end` ends it, `escape` first tries to go on"
        " with other words. A request may set `repetition_detection` instead.",
    )

    threads: Annotated[int | None, Field(ge=1, le=1024)] = memory_setting(
        None, "CPU threads of the engine. Default: the number of physical cores."
    )
    flash_attn: Literal["auto", "on", "off"] = memory_setting("auto", "Flash attention.")
    type_k: KvType = memory_setting("f16", "Type of cached keys.")
    type_v: KvType = memory_setting("f16", "Type of cached values; quantised types require flash attention.")
    n_batch: Annotated[int, Field(ge=32, le=1 << 20)] = memory_setting(
        2048, "Maximum tokens of one engine step."
    )
    n_ubatch: Annotated[int, Field(ge=32, le=1 << 20)] = memory_setting(
        512, "Maximum tokens of one pass through the model."
    )
    cache_sequences: Annotated[int, Field(ge=0, le=256)] = memory_setting(
        16, "Number of finished sequences to keep for reuse of common prefixes."
    )
    stream_share: Annotated[float | None, Field(ge=0.05, le=0.95)] = memory_setting(
        None,
        "Share of compute time reserved for streaming answers while prompts or embedding inputs are"
        " processed; less of it processes those sooner. Automatic: beside prompts, by the number of answers and of"
        " prompts, with at most one noticeable pause in 20 tokens; beside embedding inputs, 0.7.",
    )
    idle_cells: Annotated[int | None, Field(ge=0, le=1 << 24)] = memory_setting(
        None,
        "Tokens of finished answers that stay in the KV cache while other answers stream; the rest"
        " moves to RAM, one answer each time a request begins or ends. Each of them costs time in every step."
        " Default: 4096, or 1024 on a device or without flash attention.",
    )
    share_prefill: bool = memory_setting(
        True, "A prompt that shares a prefix with a prompt in prefill waits for it and reuses the prefix."
    )
    prefer_cached: bool = memory_setting(
        True, "A waiting request whose prompt is cached may overtake a few others."
    )
    jump_forward: bool = memory_setting(
        True, "Skip sampling of text that a schema or grammar fully determines."
    )
    draft_model: Annotated[str | None, Field(min_length=1)] = memory_setting(
        None,
        "Draft model for speculative decoding: a small model of the same family, by name or file.",
        metavar="NAME|FILE",
    )
    prompt_lookup: Literal["auto", "on", "off"] = memory_setting(
        "auto",
        "Speculative decoding with drafts from earlier text: if it pays off (`auto`), always, or never.",
    )
    mtp: Literal["auto", "on", "off"] = memory_setting(
        "auto",
        "Speculative decoding with the head for further tokens that the model may have (MTP): on"
        " accelerators if it pays off (`auto`), always, or never. Not beside a draft model.",
    )
    cache_ram_mib: Annotated[int | None, Field(ge=0)] = memory_setting(
        None,
        "Memory for prompts evicted from the KV cache, in MiB; 0 keeps none. Default: a sixteenth of"
        " the memory, at most 2048.",
    )
    cache_disk_mib: Annotated[int | None, Field(ge=0)] = memory_setting(
        None,
        "Disk space for prompts kept across restarts, in MiB; 0 keeps none. Default: a tenth of the"
        " free space, at most 8192.",
    )
    mmap: bool = memory_setting(True, "Memory-map the weights instead of reading them.")
    mlock: bool = memory_setting(False, "Lock the weights in physical memory.")
    repack: bool = memory_setting(
        True,
        "Let llama.cpp reorder weights for its kernels, if it has some for this CPU and quantisation."
        " jan-serve's own kernels for x86 CPUs take weights as they are stored.",
    )
    deterministic: bool = memory_setting(
        False,
        "The same request has the same answer to the bit, also beside others, with all types of weights on a CPU."
        " Off: with most types. Prompts take longer with IQ1 types.",
    )
    huge_pages: bool = memory_setting(True, "Request huge pages (Linux): a few percent faster on CPUs.")

    @field_validator("type_v")
    @classmethod
    def _check_flash_attention(cls, type_v: KvType, others: ValidationInfo) -> KvType:
        if is_quantised(type_v) and others.data.get("flash_attn") == "off":
            raise ValueError(
                "must be f32, f16 or bf16 where flash_attn is off: quantised values require flash attention"
            )
        return type_v

    @field_validator("deterministic")
    @classmethod
    def _check_deterministic(cls, deterministic: bool, others: ValidationInfo) -> bool:
        if deterministic and others.data.get("flash_attn") == "off":
            raise ValueError("must be off where flash_attn is off: the same bits require flash attention")
        return deterministic


_ALL_LAYERS: Final = -1
SAME_NAME: Final = tuple(
    name for name in EngineSettings.__struct_fields__ if name in ModelOptions.model_fields and name != "mtp"
)
"""The options that the worker has under the same name; the others are converted here or stay in the front."""


def engine_settings(options: ModelOptions, model: ModelFile) -> EngineSettings:
    """Settings of a worker that loads `model`. "auto" becomes None: only the worker knows the free memory.
    Reads the header again if tensors are overridden or a head is used. Raises InvalidModel."""
    layers = options.n_gpu_layers
    values: dict[str, Any] = {name: getattr(options, name) for name in SAME_NAME}
    values["n_ubatch"] = min(options.n_ubatch, options.n_batch)
    overrides = tuple(map(parse_override, options.override_tensor))
    placement = PlacementOptions(
        n_gpu_layers=None if layers == "auto" else _ALL_LAYERS if layers == "all" else layers,
        n_cpu_moe=options.n_cpu_moe,
        tensor_split=options.tensor_split,
        split_mode=options.split_mode,
        main_gpu=options.main_gpu,
        override_tensor=overrides,
        require_accelerator=options.require_accelerator,
    )
    unused_heads = why_unused(
        model.architecture, model.parts, options.mtp, has_draft_model=options.draft_model is not None
    )
    mtp = "off" if unused_heads or not model.parts.n_ahead else options.mtp
    parts = model.parts
    if overrides or mtp != "off":
        parts = read_model_parts(model, overrides, with_heads=mtp != "off")
    return EngineSettings(
        **values,
        mtp=mtp,
        unused_heads=unused_heads,
        use_mmap=options.mmap,
        use_mlock=options.mlock,
        use_repack=options.repack,
        cache_ram_bytes=_bytes(options.cache_ram_mib),
        cache_disk_bytes=_bytes(options.cache_disk_mib),
        parts=parts,
        placement=placement,
        n_ctx_train=model.n_ctx_train or 0,
        k_elements=model.k_elements,
        v_elements=model.v_elements,
    )


def _bytes(mib: int | None) -> int | None:
    return None if mib is None else mib * 2**20
