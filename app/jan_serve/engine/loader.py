"""Loads a model as the settings and the machine allow."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import psutil

from jan_serve.core.default_context import MIN_DEFAULT_N_CTX, default_n_ctx
from jan_serve.core.models.model_facts import DeviceInfo, ModelFacts
from jan_serve.engine import memory_fit
from jan_serve.engine.adapters import Adapters
from jan_serve.engine.cache.model_identity import model_parts, rope_factors
from jan_serve.engine.cache.sequence_memory import IDLE_CELLS, SLOW_COPY_IDLE_CELLS
from jan_serve.engine.cache.state_cache import StateCache
from jan_serve.engine.cache.state_files import StateFiles, state_key
from jan_serve.engine.compute_turns import usable_cores
from jan_serve.engine.drafting.draft_loader import load_drafting
from jan_serve.engine.drafting.draft_model import DraftModel
from jan_serve.engine.embedding.embedder import Embedder
from jan_serve.engine.embedding.embedder_loader import (
    DEFAULT_N_CTX,
    DEFAULT_N_CTX_IN_PIECES,
    make_embedder,
    reads_in_pieces,
)
from jan_serve.engine.llama import backend
from jan_serve.engine.llama.bindings import lib
from jan_serve.engine.llama.context import LlamaContext
from jan_serve.engine.llama.model import LlamaModel
from jan_serve.engine.llama.projector import Projector
from jan_serve.engine.llama.thread_pool import ThreadPool
from jan_serve.engine.load_trial import try_out
from jan_serve.engine.media.media_reader import MediaReader
from jan_serve.engine.rpc_peers import connect_peers
from jan_serve.engine.scoring.scorer import Scorer, make_scorer
from jan_serve.engine.tokenizing import TextTokenizer
from jan_serve.errors import InsufficientMemory, InvalidModel
from jan_serve.ipc.messages import EngineSettings, LoadModel
from jan_serve.placement.beside import HEAD_DRAFT, bytes_beside, wants_head
from jan_serve.placement.device_plan import (
    DevicePlan,
    kv_bytes_per_token,
    plan_devices,
)

logger = logging.getLogger(__name__)

_ONE_THREAD_BYTES = 16 * 1024 * 1024
_MAX_CACHE_RAM = 2 * 2**30
_MAX_CACHE_DISK = 8 * 2**30
_MAX_SEQUENCES = 256  # LLAMA_MAX_SEQ
# Each sequence of a recurrent model has a whole state, not only cells: few are kept.
_RECURRENT_CACHE_SEQUENCES = 4


class LoadedModel(msgspec.Struct):
    """The parts of a loaded model. context: None for a model that only embeds. settings: see `resolved`."""

    model: LlamaModel
    context: LlamaContext | None
    embedder: Embedder
    scorer: Scorer
    facts: ModelFacts
    settings: EngineSettings
    states: StateCache
    adapters: Adapters
    draft_model: DraftModel | None = None
    projector: Projector | None = None
    media: MediaReader | None = None


def resolved(settings: EngineSettings, facts: ModelFacts, cache_sequences: int) -> EngineSettings:
    """The settings with the values that the loaded model decides in place of the automatic ones."""
    on_cpu, has_flash = facts.n_gpu_layers == 0, settings.flash_attn != "off"
    idle_cells = settings.idle_cells
    if idle_cells is None:
        idle_cells = IDLE_CELLS if on_cpu and has_flash else SLOW_COPY_IDLE_CELLS
    return msgspec.structs.replace(
        settings,
        n_ctx=facts.n_ctx,
        parallel=facts.parallel,
        cache_sequences=cache_sequences,
        idle_cells=idle_cells,
    )


def load(request: LoadModel, on_progress: Callable[[float], bool]) -> LoadedModel:
    """Load the file; blocks. Raises InvalidModel, InsufficientMemory, SettingsError."""
    with backend.allocations() as allocated:
        loaded = _load(request, on_progress)
    placement = tuple(
        msgspec.structs.replace(part, allocated=allocated.get(part.device, 0))
        for part in loaded.facts.placement
    )
    loaded.facts = msgspec.structs.replace(loaded.facts, placement=placement)
    return loaded


def _load(request: LoadModel, on_progress: Callable[[float], bool]) -> LoadedModel:
    started = time.monotonic()
    settings = request.settings
    on_cpu = settings.placement.n_gpu_layers == 0 or (settings.device or "").lower() == "cpu"
    missing = {} if on_cpu else connect_peers(settings.rpc)
    devices = backend.devices()
    beside = bytes_beside(settings, _size)
    plan = plan_devices(settings, backend.accelerators(), psutil.virtual_memory().total, beside, missing)
    _check_memory(settings, plan, beside)
    if settings.mtp == "auto" and not plan.llama.devices:
        # Measured: it does not pay on the CPU (ADR 0016).
        settings = msgspec.structs.replace(settings, mtp="off")
    model = LlamaModel(
        request.path,
        placement=plan.llama,
        use_mmap=settings.use_mmap,
        use_mlock=settings.use_mlock,
        use_repack=settings.use_repack,
        with_heads=wants_head(settings),
        on_progress=on_progress,
    )
    adapters = Adapters(model, settings.adapters)
    threads = ThreadPool(settings.threads or default_threads(model.size_bytes))
    pooling, embedding_only = _pooling(settings, model)
    if model.is_diffusion and not embedding_only:
        raise InvalidModel(
            f"it is a diffusion model ({model.architecture}), which fills in many places of a text at once: jan-serve"
            " serves models that write one token after another"
        )
    in_pieces, embedding_n_ctx = False, None
    if embedding_only:
        in_pieces = reads_in_pieces(model, None, pooling)
        embedding_n_ctx = DEFAULT_N_CTX_IN_PIECES if in_pieces else DEFAULT_N_CTX
    projector, fault = (None, "") if embedding_only else _projector(settings, model, threads, plan.local)
    if projector is not None and not projector.is_causal:
        # The cells of an image attend to each other, so they are one micro-batch.
        least = projector.largest_part()
        settings = msgspec.structs.replace(
            settings, n_batch=max(settings.n_batch, least), n_ubatch=max(settings.n_ubatch, least)
        )
    n_ctx = _n_ctx(settings, model, plan, embedding_n_ctx)
    # llama.cpp asserts a cell for each sequence.
    parallel = min(settings.parallel or memory_fit.default_parallel(n_ctx), n_ctx)
    cache_sequences = min(settings.cache_sequences, _MAX_SEQUENCES - parallel, n_ctx - parallel)
    if model.is_recurrent:
        cache_sequences = min(cache_sequences, _RECURRENT_CACHE_SEQUENCES)
    context = None
    if not embedding_only:
        context, n_ctx = memory_fit.with_shorter_context(
            lambda length: _context(model, settings, length, parallel + cache_sequences, threads),
            n_ctx,
            min_n_ctx=n_ctx if settings.n_ctx is not None else MIN_DEFAULT_N_CTX,
        )
    try_out(model, context, threads)
    facts = _facts(model, settings, n_ctx, parallel, threads.count, plan, devices, pooling, embedding_only)
    facts = msgspec.structs.replace(
        facts,
        load_seconds=time.monotonic() - started,
        adapters=adapters.facts,
        projector_fault=fault,
    )
    in_pieces = in_pieces or (context is not None and reads_in_pieces(model, context, pooling))
    tokenizer = TextTokenizer(model.vocab)
    embedder = make_embedder(settings, model, facts, adapters, threads, tokenizer, in_pieces=in_pieces)
    scorer = make_scorer(settings, model, facts, adapters, threads, tokenizer)
    states = StateCache(0) if context is None else _states(request, context)
    draft = None
    if context is not None:
        draft = load_drafting(
            settings,
            context,
            parallel,
            plan.local,
            lambda model, own, head_of: _context(model, own, context.n_ctx, parallel, threads, head_of),
        )
    settings = resolved(settings, facts, cache_sequences)
    media = None
    if projector is not None and context is not None:
        facts = msgspec.structs.replace(
            facts, modalities=projector.modalities, audio_rate=projector.audio_rate
        )
        identity = state_key([Path(settings.projector or "")])
        media = MediaReader(projector, identity, most_together=context.n_ubatch)
    return LoadedModel(
        model, context, embedder, scorer, facts, settings, states, adapters, draft, projector, media
    )


def _projector(
    settings: EngineSettings, model: LlamaModel, threads: ThreadPool, device: str | None
) -> tuple[Projector | None, str]:
    """The projector, on a device of this machine if the model is, and why one that is not required is useless.

    Raises InvalidModel.
    """
    if settings.projector is None:
        return None, ""
    try:
        projector = Projector(
            settings.projector, model, threads=threads.count, use_gpu=device is not None, device=device
        )
    except InvalidModel as error:
        if settings.projector_required:
            raise
        logger.warning("the model is served for text only: %s", error.message)
        return None, error.message
    return projector, ""


def _states(request: LoadModel, context: LlamaContext) -> StateCache:
    """The tiers below the KV cache, sized by the settings or the machine."""
    settings, model = request.settings, context.model
    ram = settings.cache_ram_bytes
    if ram is None:
        ram = min(_MAX_CACHE_RAM, psutil.virtual_memory().total // 16)
    if settings.cache_ram_most is not None:
        ram = min(ram, settings.cache_ram_most)
    disk = settings.cache_disk_bytes
    files = None
    if settings.cache_dir is not None and disk != 0:
        root = Path(settings.cache_dir)
        try:
            root.mkdir(parents=True, exist_ok=True, mode=0o700)
            if disk is None:
                disk = min(_MAX_CACHE_DISK, psutil.disk_usage(str(root)).free // 10)
            factors = rope_factors(model.metadata(), context.n_ctx)
            key = state_files_key(request, factors)
            files = StateFiles(root, key, disk, max_tokens=context.n_ctx)
        except OSError as error:
            logger.warning("prompt states are not saved to disk: %s", error)
    # A state with sliding windows holds only what the end of its sequence attends to: it is usable as a whole only.
    return StateCache(ram, files, whole_only=model.is_recurrent or model.n_swa > 0)


def state_files_key(request: LoadModel, factors: str) -> str:
    """Identifies everything but the tokens that the bytes of a state depend on. factors: see `rope_factors`."""
    settings = request.settings
    layout = (settings.type_k, settings.type_v, settings.flash_attn, str(lib.LLAMA_STATE_SEQ_VERSION))
    files = [*model_parts(Path(request.path))]
    if settings.projector is not None:
        files.append(Path(settings.projector))
    return state_key(files, backend.version(), *layout, *filter(None, [factors]))


def default_threads(weight_bytes: int) -> int:
    """The physical cores of this process: a second thread per core gains llama.cpp nothing.

    One thread for a tiny model: a token takes less time than the barriers between its graph nodes.
    """
    if weight_bytes < _ONE_THREAD_BYTES:
        return 1
    physical = psutil.cpu_count(logical=False) or 1
    return max(1, min(physical, usable_cores()))


def _check_memory(settings: EngineSettings, plan: DevicePlan, beside: int) -> None:
    """Raises InsufficientMemory, before reading the weights, if they exceed all usable memory."""
    weights = settings.parts.weights + beside
    memory = psutil.virtual_memory().total + sum(
        part.memory for part in plan.placed if part.kind in ("gpu", "rpc")
    )
    if weights > memory:
        raise InsufficientMemory(
            f"the model needs {weights / 2**30:.1f} GiB for its weights, and this machine has {memory / 2**30:.1f} GiB",
            retry_after=None,
        )


def _size(file: str) -> int:
    """0 if it cannot be read: the load names the reason."""
    try:
        return Path(file).stat().st_size
    except OSError:
        return 0


def _pooling(settings: EngineSettings, model: LlamaModel) -> tuple[str, bool]:
    """The pooling, and whether the model can only embed.

    llama.cpp pools by mean if the model names none. "none", which has a vector per token and not one per input, is kept
    where the settings ask for it.
    """
    named = model.default_pooling()
    causal = model.metadata().get(f"{model.architecture}.attention.causal", "true")
    embedding_only = named in ("mean", "cls", "last", "rank") or causal == "false"
    pooling = settings.pooling or named
    known = pooling in ("mean", "cls", "last", "rank") or settings.pooling is not None
    return (pooling if known else "mean"), embedding_only


def _n_ctx(settings: EngineSettings, model: LlamaModel, plan: DevicePlan, embedding_n_ctx: int | None) -> int:
    """embedding_n_ctx: the default of a model that only embeds; None for other models."""
    if embedding_n_ctx is not None:
        n_ctx = settings.n_ctx or embedding_n_ctx
        return min(n_ctx, model.n_ctx_train) if model.n_ctx_train else n_ctx
    if settings.n_ctx is not None:
        return settings.n_ctx
    if plan.n_ctx is not None:
        return plan.n_ctx
    per_token = kv_bytes_per_token(settings)
    # "available" still includes the memory for mmap-ed weights.
    free = max(0, psutil.virtual_memory().available - model.size_bytes)
    return default_n_ctx(model.n_ctx_train, per_token, free, settings.context_bytes)


def _context(
    model: LlamaModel,
    settings: EngineSettings,
    n_ctx: int,
    n_seq_max: int,
    threads: ThreadPool,
    head_of: LlamaContext | None = None,
) -> LlamaContext:
    needed = n_ctx * kv_bytes_per_token(settings)
    available = psutil.virtual_memory().total
    if needed > available and not any(d.kind in ("gpu", "rpc") for d in backend.accelerators()):
        raise InsufficientMemory(
            f"a context of {n_ctx} tokens needs {needed / 2**30:.1f} GiB, and this machine has"
            f" {available / 2**30:.1f} GiB: use a smaller --n-ctx, or --type-k q8_0 --type-v q8_0",
            retry_after=None,
        )
    is_rolled_back = (
        model.is_recurrent and model.n_heads_ahead == 1 and wants_head(settings) and head_of is None
    )
    return LlamaContext(
        model,
        n_ctx=n_ctx,
        n_batch=min(max(settings.n_batch, n_seq_max), max(n_ctx, n_seq_max)),
        n_ubatch=settings.n_ubatch,
        n_seq_max=n_seq_max,
        threads=threads,
        flash_attn=settings.flash_attn,
        type_k=settings.type_k,
        type_v=settings.type_v,
        head_of=head_of,
        max_rollback=HEAD_DRAFT if is_rolled_back else 0,
    )


def _facts(
    model: LlamaModel,
    settings: EngineSettings,
    n_ctx: int,
    parallel: int,
    threads: int,
    plan: DevicePlan,
    devices: tuple[DeviceInfo, ...],
    pooling: str,
    embedding_only: bool,
) -> ModelFacts:
    metadata = model.metadata()
    used = [part.device for part in plan.placed if part.kind != "cpu"] or plan.llama.devices
    return ModelFacts(
        description=model.description,
        architecture=model.architecture,
        n_ctx=n_ctx,
        n_ctx_train=model.n_ctx_train,
        n_vocab=model.vocab.n_tokens,
        n_embd=model.n_embd,
        n_params=model.n_params,
        size_bytes=model.size_bytes,
        parallel=parallel,
        threads=threads,
        n_gpu_layers=min(plan.n_gpu_layers, model.n_layer + 1) if used else 0,
        n_layer=model.n_layer,
        device=", ".join(used) or "CPU",
        devices=devices,
        pooling=pooling,
        is_embedding_model=embedding_only,
        is_recurrent=model.is_recurrent,
        special_tokens=model.vocab.special,
        eog_token_ids=model.vocab.eog_ids,
        add_bos=model.vocab.add_bos,
        add_eos=model.vocab.add_eos,
        chat_templates=model.chat_templates(),
        metadata=metadata,
        kv_bytes=0 if embedding_only else n_ctx * kv_bytes_per_token(settings),
        score_labels=model.score_labels() if pooling == "rank" else (),
        placement=plan.placed,
        placement_warning=plan.warning,
    )
