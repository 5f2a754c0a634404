"""The worker's settings: model options and the sizes from the model's header."""

from __future__ import annotations

from typing import Any, Final

from jan_serve.config.model_options import ModelOptions
from jan_serve.core.placement import PlacementOptions, parse_override
from jan_serve.ipc.messages import EngineSettings
from jan_serve.placement.workload import why_unused
from jan_serve.store.gguf.model_file import ModelFile, read_model_parts

_ALL_LAYERS: Final = -1
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
