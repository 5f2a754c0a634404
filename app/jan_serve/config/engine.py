"""The worker's settings: model options and the sizes from the model's header."""

from __future__ import annotations

from typing import Any, Final

from jan_serve.config.model_options import ModelOptions
from jan_serve.core.models.placement import PlacementOptions, parse_override
from jan_serve.ipc.messages import EngineSettings
from jan_serve.store.gguf.model_file import ModelFile, read_model_parts

_ALL_LAYERS: Final = -1
_TRIED_HEADS: Final = frozenset({"glm4moe", "qwen35"})
_HEADS: Final = _TRIED_HEADS | {
    "cohere2moe",
    "deepseek2",
    "deepseek32",
    "glm-dsa",
    "hy_v3",
    "nemotron_h_moe",
    "qwen35moe",
}
"""Architectures whose head llama.cpp computes (graph_mtp)."""
_ROLLED_BACK: Final = frozenset({"nemotron_h_moe", "qwen35", "qwen35moe"})
"""Those of them whose recurrent layers can drop a rejected draft (llm_arch_supports_rs_rollback)."""
SAME_NAME: Final = tuple(
    name for name in EngineSettings.__struct_fields__ if name in ModelOptions.model_fields and name != "mtp"
)
"""The options that the worker has under the same name; the others are converted here or stay in the front."""


def engine_settings(options: ModelOptions, model: ModelFile) -> EngineSettings:
    """Settings of a worker that loads `model`. "auto" becomes None: only the worker knows the free memory.

    Reads the header again if tensors are overridden or a head is used. Raises InvalidModel.
    """
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
    unused_heads = _unused_heads(options, model)
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


def _unused_heads(options: ModelOptions, model: ModelFile) -> str:
    """Why heads for further tokens do not draft; "" if they may, or the model has none, or they are off."""
    count, name = model.parts.n_ahead, model.architecture
    if not count or options.mtp == "off":
        return ""
    if options.draft_model is not None:
        return "a draft model drafts in its place"
    if name not in _ROLLED_BACK and any(layer.state_elements for layer in model.parts.layers):
        return f"llama.cpp cannot drop a rejected draft from the recurrent layers of {name}"
    if count > 1:
        return f"it has {count} of them, of which each needs states of the one before, and one alone is supported"
    if name not in _HEADS:
        return f"jan-serve does not know the head of {name}"
    if name not in _TRIED_HEADS and options.mtp == "auto":
        return f"the head of {name} was not tried: mtp = on uses it"
    return ""


def _bytes(mib: int | None) -> int | None:
    return None if mib is None else mib * 2**20
