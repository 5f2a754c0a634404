"""The part of the settings that a worker is told, together with what the model's header says about its sizes."""

from __future__ import annotations

from jan_serve.config.model_options import ModelOptions
from jan_serve.ipc.messages import EngineSettings
from jan_serve.store.gguf.model_file import ModelFile

_ALL_LAYERS = -1


def engine_settings(settings: ModelOptions, model: ModelFile) -> EngineSettings:
    """Settings of a worker that loads `model`. "auto" stays open (None): only the worker knows the free memory."""
    layers = settings.n_gpu_layers
    return EngineSettings(
        n_ctx=settings.n_ctx,
        parallel=settings.parallel,
        n_batch=settings.n_batch,
        n_ubatch=min(settings.n_ubatch, settings.n_batch),
        threads=settings.threads,
        n_gpu_layers=None if layers == "auto" else _ALL_LAYERS if layers == "all" else layers,
        device=settings.device,
        flash_attn=settings.flash_attn,
        type_k=settings.type_k,
        type_v=settings.type_v,
        use_mmap=settings.mmap,
        use_mlock=settings.mlock,
        use_repack=settings.repack,
        huge_pages=settings.huge_pages,
        pooling=settings.pooling,
        cache_sequences=settings.cache_sequences,
        prompt_lookup=settings.prompt_lookup,
        step_target_s=settings.step_target_s,
        stream_share=settings.stream_share,
        prefill_tiles=settings.prefill_tiles,
        idle_cells=settings.idle_cells,
        share_prefill=settings.share_prefill,
        prefer_cached=settings.prefer_cached,
        jump_forward=settings.jump_forward,
        cache_ram_bytes=_bytes(settings.cache_ram_mib),
        cache_disk_bytes=_bytes(settings.cache_disk_mib),
        max_tokens_ceiling=settings.max_tokens_ceiling,
        layer_bytes=model.layer_bytes,
        other_bytes=model.other_bytes,
        n_ctx_train=model.n_ctx_train or 0,
        k_elements=model.k_elements,
        v_elements=model.v_elements,
    )


def _bytes(mib: int | None) -> int | None:
    return None if mib is None else mib * 2**20
