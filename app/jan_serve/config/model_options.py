"""Settings that hold for all models at the top level, and for one in its own table: how models are loaded and kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import Field
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

KvType = Literal["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"]
Pooling = Literal["none", "mean", "cls", "last", "rank"]

MODEL_GROUP: Final = "Model"
MEMORY_GROUP: Final = "Memory and speed"
KEEP_LOADED: Final = -1.0


@dataclass(frozen=True, slots=True)
class Flag:
    """How a field looks on the command line: its help group, and its name where that is not the field's own."""

    group: str
    name: str | None = None
    metavar: str | None = None


class ModelOptions(BaseSettings):
    """What can be said of all models and of each. Frozen. Times are seconds, lengths tokens."""

    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", protected_namespaces=(), validate_default=True, hide_input_in_errors=True
    )

    n_ctx: Annotated[
        int | None,
        Field(
            ge=64,
            le=1 << 30,
            description="Context length in tokens, shared by all running sequences. By default the model's own,"
            " as far as memory allows.",
        ),
        Flag(MODEL_GROUP),
    ] = None
    parallel: Annotated[
        int | None,
        Field(
            ge=1, le=256, description="Sequences that run at once. By default chosen by the context length."
        ),
        Flag(MODEL_GROUP),
    ] = None
    pooling: Annotated[
        Pooling | None,
        Field(description="How embeddings are pooled. By default as the model says, else `mean`."),
        Flag(MODEL_GROUP),
    ] = None
    max_tokens_ceiling: Annotated[
        int,
        Field(
            ge=0,
            description="Completions end there even if the request set no limit. 0 is the context length.",
        ),
        Flag(MODEL_GROUP),
    ] = 0
    ttl_s: Annotated[
        float,
        Field(
            ge=KEEP_LOADED,
            le=31_536_000,
            description="How long a model stays loaded that nobody asks for. -1 keeps it until its room is needed; 0"
            " unloads it after each request.",
        ),
        Flag(MODEL_GROUP),
    ] = 600.0

    threads: Annotated[
        int | None,
        Field(ge=1, le=1024, description="CPU threads of the engine. By default the physical cores."),
        Flag(MEMORY_GROUP),
    ] = None
    n_gpu_layers: Annotated[
        Literal["auto", "all"] | Annotated[int, Field(ge=0, le=10_000)],
        Field(
            description="Layers on the accelerator: `auto` (what fits its free memory), `all`, or a number."
        ),
        Flag(MEMORY_GROUP, metavar="auto|all|N"),
    ] = "auto"
    device: Annotated[
        str | None,
        Field(
            min_length=1,
            description="Device to use, as `jan-serve doctor` names it; `cpu` uses no accelerator.",
        ),
        Flag(MEMORY_GROUP),
    ] = None
    flash_attn: Annotated[
        Literal["auto", "on", "off"], Field(description="Flash attention."), Flag(MEMORY_GROUP)
    ] = "auto"
    type_k: Annotated[KvType, Field(description="Type of the cached keys."), Flag(MEMORY_GROUP)] = "f16"
    type_v: Annotated[
        KvType,
        Field(description="Type of the cached values; quantised types need flash attention."),
        Flag(MEMORY_GROUP),
    ] = "f16"
    n_batch: Annotated[
        int, Field(ge=32, le=1 << 20, description="Most tokens of one engine step."), Flag(MEMORY_GROUP)
    ] = 2048
    n_ubatch: Annotated[
        int,
        Field(ge=32, le=1 << 20, description="Most tokens of one pass through the model."),
        Flag(MEMORY_GROUP),
    ] = 512
    cache_sequences: Annotated[
        int,
        Field(
            ge=0,
            le=256,
            description="Finished sequences that are kept, so that a common prefix is not computed again.",
        ),
        Flag(MEMORY_GROUP),
    ] = 16
    step_target_s: Annotated[
        float,
        Field(
            ge=0,
            le=60,
            description="Prompts are read in pieces of about this time while answers are written, longer where the"
            " hardware is slow, but a second at most; 0 does not cut them.",
        ),
        Flag(MEMORY_GROUP),
    ] = 0.1
    stream_share: Annotated[
        float,
        Field(
            ge=0.05,
            le=0.95,
            description="Part of the time that answers keep while prompts, or inputs to embed, are read beside them;"
            " with less, these are read sooner.",
        ),
        Flag(MEMORY_GROUP),
    ] = 0.7
    prefill_tiles: Annotated[
        bool,
        Field(
            description="Beside answers, prompts are read in pieces of 64 tokens where the CPU reads these faster than"
            " shorter ones."
        ),
        Flag(MEMORY_GROUP),
    ] = True
    idle_cells: Annotated[
        int | None,
        Field(
            ge=0,
            le=1 << 24,
            description="Tokens of finished answers that stay in the KV cache while others are written; the rest goes"
            " to RAM. By default 64, or 1024 where copying is slow: CPUs pay for each at every step.",
        ),
        Flag(MEMORY_GROUP),
    ] = None
    share_prefill: Annotated[
        bool,
        Field(
            description="A prompt that begins like one that is being read waits for it, instead of being read again."
        ),
        Flag(MEMORY_GROUP),
    ] = True
    prefer_cached: Annotated[
        bool,
        Field(description="A waiting request whose prompt was read before may pass a few others."),
        Flag(MEMORY_GROUP),
    ] = True
    jump_forward: Annotated[
        bool,
        Field(description="Text that a schema or grammar leaves no choice about is not sampled."),
        Flag(MEMORY_GROUP),
    ] = True
    draft_model: Annotated[
        str | None,
        Field(
            min_length=1,
            description="A small model of the same family that guesses ahead, by name or file. Every guess is"
            " checked.",
        ),
        Flag(MEMORY_GROUP, metavar="NAME|FILE"),
    ] = None
    prompt_lookup: Annotated[
        Literal["auto", "on", "off"],
        Field(
            description="Guess what repeats from what was said before: where that pays (`auto`), always, or never."
            " Every guess is checked."
        ),
        Flag(MEMORY_GROUP),
    ] = "auto"
    cache_ram_mib: Annotated[
        int | None,
        Field(
            ge=0,
            description="Memory for prompts that left the KV cache, in MiB; 0 keeps none. By default a sixteenth"
            " of the memory, 2048 at most.",
        ),
        Flag(MEMORY_GROUP),
    ] = None
    cache_disk_mib: Annotated[
        int | None,
        Field(
            ge=0,
            description="Disk space for prompts that are kept over a restart, in MiB; 0 keeps none. By default a tenth"
            " of what is free, 8192 at most.",
        ),
        Flag(MEMORY_GROUP),
    ] = None
    mmap: Annotated[
        bool, Field(description="Map the weights from the file instead of reading them."), Flag(MEMORY_GROUP)
    ] = True
    mlock: Annotated[bool, Field(description="Keep the weights in physical memory."), Flag(MEMORY_GROUP)] = (
        False
    )
    repack: Annotated[
        bool,
        Field(
            description="Let llama.cpp reorder weights for its kernels, where it has some for this CPU and this"
            " quantisation. Without, weights stay as they are in the file, and on x86 CPUs with AVX-512 K-quants read"
            " prompts a quarter faster, and several answers at once a third slower."
        ),
        Flag(MEMORY_GROUP),
    ] = True
    huge_pages: Annotated[
        bool,
        Field(
            description="Ask the system for huge pages of memory, where it has them (Linux): a few percent faster on"
            " CPUs."
        ),
        Flag(MEMORY_GROUP),
    ] = True

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only the values handed in: `sources.load_settings` merges the others and knows where each is from."""
        return (init_settings,)
