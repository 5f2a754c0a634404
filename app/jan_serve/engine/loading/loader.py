"""Loads a model as the settings and the machine allow."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import psutil

from jan_serve.core.models import DeviceInfo, ModelFacts
from jan_serve.core.placement import MIN_DEFAULT_N_CTX, default_n_ctx
from jan_serve.engine.cache.cell_allocator import IDLE_CELLS, SLOW_COPY_IDLE_CELLS
from jan_serve.engine.cache.state_cache import StateCache
from jan_serve.engine.cache.state_identity import state_key, weights_of
from jan_serve.engine.decoding import Adapters, InterruptibleDecode
from jan_serve.engine.drafting.draft_model import DraftModel
from jan_serve.engine.embedding.embedder import (
    DEFAULT_N_CTX,
    DEFAULT_N_CTX_IN_PIECES,
    Embedder,
    make_embedder,
    reads_in_pieces,
)
from jan_serve.engine.llama import backend
from jan_serve.engine.llama.context import LlamaContext
from jan_serve.engine.llama.model import LlamaModel
from jan_serve.engine.llama.projector import Projector
from jan_serve.engine.llama.rpc import connect_peers
from jan_serve.engine.llama.thread_pool import ThreadPool, default_threads
from jan_serve.engine.loading.contexts import (
    default_parallel,
    grows_to,
    load_drafting,
    make_states,
    try_out,
    with_shorter_context,
)
from jan_serve.engine.prompt_media import MediaLayout
from jan_serve.engine.scoring.scorer import Scorer, make_scorer
from jan_serve.engine.tokenizing import TextTokenizer
from jan_serve.errors import InsufficientMemory, InvalidModel
from jan_serve.ipc.messages import EngineSettings, LoadModel
from jan_serve.placement.device_plan import DevicePlan, kv_bytes_per_token, plan_devices
from jan_serve.placement.workload import HEAD_DRAFT, bytes_beside, wants_head

logger = logging.getLogger(__name__)

_MAX_SEQUENCES = 256  # LLAMA_MAX_SEQ
# Each sequence of a recurrent model has a whole state, not only cells: few are kept.
_RECURRENT_CACHE_SEQUENCES = 4


class LoadedModel(msgspec.Struct):
    """The parts of a loaded model. context: None for a model that only embeds. settings: see `resolved`.

    decode: of contexts beside that one. computes_apart: whether a device computes while llama_decode has returned.
    """

    model: LlamaModel
    context: LlamaContext | None
    embedder: Embedder
    scorer: Scorer
    facts: ModelFacts
    settings: EngineSettings
    states: StateCache
    adapters: Adapters
    decode: InterruptibleDecode
    computes_apart: bool
    draft_model: DraftModel | None = None
    projector: Projector | None = None
    media: MediaLayout | None = None


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


class _Plan(msgspec.Struct, frozen=True):
    """Where the parts of the model go. devices: all that ggml sees."""

    settings: EngineSettings
    devices: tuple[DeviceInfo, ...]
    placed: DevicePlan


class _Opened(msgspec.Struct, frozen=True):
    """The model and its files beside it, before any context.

    settings: with batches that the projector can use. in_pieces: whether a model that only embeds may cut its inputs.
    """

    settings: EngineSettings
    model: LlamaModel
    adapters: Adapters
    threads: ThreadPool
    pooling: str
    only_embeds: bool
    in_pieces: bool
    projector: Projector | None
    projector_fault: str


class _Sizes(msgspec.Struct, frozen=True):
    """The sizes that EngineSettings leaves open, decided."""

    n_ctx: int
    parallel: int
    cache_sequences: int


def load(request: LoadModel, on_progress: Callable[[float], bool]) -> LoadedModel:
    """Load the file; blocks. Raises InvalidModel, InsufficientMemory, SettingsError."""
    started = time.monotonic()
    with backend.allocations() as allocated:
        plan = _plan(request.settings)
        opened = _open(request.path, plan, on_progress)
        context, sizes = _build(opened, _size(opened, plan.placed))
        facts = _describe(opened, plan, sizes, weights_of(request), time.monotonic() - started)
        loaded = _assemble(request, opened, context, facts, sizes, plan.placed)
    placement = tuple(
        msgspec.structs.replace(part, allocated=allocated.get(part.device, 0)) for part in facts.placement
    )
    loaded.facts = msgspec.structs.replace(facts, placement=placement)
    return loaded


def _plan(settings: EngineSettings) -> _Plan:
    on_cpu = settings.placement.n_gpu_layers == 0 or (settings.device or "").lower() == "cpu"
    missing = {} if on_cpu else connect_peers(settings.rpc)
    devices = backend.devices()
    beside = bytes_beside(settings, _file_bytes)
    placed = plan_devices(settings, backend.accelerators(), psutil.virtual_memory().total, beside, missing)
    _check_memory(settings, placed, beside)
    if settings.mtp == "auto" and not placed.llama.devices:
        # Measured: it does not pay on the CPU (ADR 0016).
        settings = msgspec.structs.replace(settings, mtp="off")
    return _Plan(settings, devices, placed)


def _open(path: str, plan: _Plan, on_progress: Callable[[float], bool]) -> _Opened:
    settings = plan.settings
    if settings.deterministic:
        backend.round_alike()
    model = LlamaModel(
        path,
        placement=plan.placed.llama,
        use_mmap=settings.use_mmap,
        use_mlock=settings.use_mlock,
        use_repack=settings.use_repack and not settings.deterministic,
        with_heads=wants_head(settings),
        on_progress=on_progress,
    )
    adapters = Adapters(model, settings.adapters)
    threads = ThreadPool(settings.threads or default_threads(model.size_bytes))
    pooling, only_embeds = _pooling(settings, model)
    if model.is_diffusion and not only_embeds:
        raise InvalidModel(
            f"it is a diffusion model ({model.architecture}), which fills in many places of a text at once: jan-serve"
            " serves models that write one token after another"
        )
    projector, fault = None, ""
    if not only_embeds:
        projector, fault = _projector(settings, model, threads, plan.placed.local)
    if projector is not None and not projector.is_causal:
        # The cells of an image attend to each other, so they are one micro-batch.
        least = projector.largest_part()
        settings = msgspec.structs.replace(
            settings, n_batch=max(settings.n_batch, least), n_ubatch=max(settings.n_ubatch, least)
        )
    in_pieces = only_embeds and reads_in_pieces(model, None, pooling)
    return _Opened(settings, model, adapters, threads, pooling, only_embeds, in_pieces, projector, fault)


def _size(opened: _Opened, placed: DevicePlan) -> _Sizes:
    settings, model = opened.settings, opened.model
    n_ctx = _embedding_n_ctx(opened) if opened.only_embeds else _n_ctx(settings, model, placed)
    # llama.cpp asserts a cell for each sequence.
    parallel = min(settings.parallel or default_parallel(n_ctx), n_ctx)
    cache_sequences = min(settings.cache_sequences, _MAX_SEQUENCES - parallel, n_ctx - parallel)
    if model.is_recurrent:
        cache_sequences = min(cache_sequences, _RECURRENT_CACHE_SEQUENCES)
    return _Sizes(n_ctx, parallel, cache_sequences)


def _build(opened: _Opened, sizes: _Sizes) -> tuple[LlamaContext | None, _Sizes]:
    """The context, shorter if memory demands it, which has computed a token; None for a model that only embeds."""
    settings, model, threads, n_ctx = opened.settings, opened.model, opened.threads, sizes.n_ctx
    context = None
    if not opened.only_embeds:
        sequences = sizes.parallel + sizes.cache_sequences
        context, n_ctx = with_shorter_context(
            lambda length: _context(model, settings, length, sequences, threads),
            n_ctx,
            min_n_ctx=n_ctx if settings.n_ctx is not None else MIN_DEFAULT_N_CTX,
        )
    try_out(model, context, threads)
    return context, msgspec.structs.replace(sizes, n_ctx=n_ctx)


def _assemble(
    request: LoadModel,
    opened: _Opened,
    context: LlamaContext | None,
    facts: ModelFacts,
    sizes: _Sizes,
    placed: DevicePlan,
) -> LoadedModel:
    """Make what needs no memory before its use, the tiers of the cache, and what drafts."""
    settings, model, adapters, threads = opened.settings, opened.model, opened.adapters, opened.threads
    in_pieces = opened.in_pieces if context is None else reads_in_pieces(model, context, facts.pooling)
    tokenizer, decode = TextTokenizer(model.vocab), InterruptibleDecode(adapters)
    draft = media = None
    states = StateCache(0)
    if context is not None:
        length = context.n_ctx
        states = make_states(request, context, max(length, facts.longest_ctx))
        draft = load_drafting(
            settings,
            context,
            sizes.parallel,
            placed.local,
            lambda model, own, head_of: _context(model, own, length, sizes.parallel, threads, head_of),
        )
        if opened.projector is not None:
            identity = state_key([Path(settings.projector or "")])
            media = MediaLayout(opened.projector, identity, most_together=context.n_ubatch)
    return LoadedModel(
        model=model,
        context=context,
        embedder=make_embedder(settings, model, facts, decode, threads, tokenizer, in_pieces=in_pieces),
        scorer=make_scorer(settings, model, facts, decode, threads, tokenizer),
        facts=facts,
        settings=resolved(settings, facts, sizes.cache_sequences),
        states=states,
        adapters=adapters,
        decode=decode,
        computes_apart=placed.is_on_one_device and backend.computes_apart(placed.llama.devices[0]),
        draft_model=draft,
        projector=opened.projector,
        media=media,
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


def _check_memory(settings: EngineSettings, plan: DevicePlan, beside: int) -> None:
    """Raises InsufficientMemory, before reading the weights, if they exceed all usable memory."""
    weights = settings.parts.weights + beside
    memory = psutil.virtual_memory().total + sum(
        part.memory for part in plan.shares if part.kind in ("gpu", "rpc")
    )
    if weights > memory:
        raise InsufficientMemory(
            f"the model needs {weights / 2**30:.1f} GiB for its weights, and this machine has {memory / 2**30:.1f} GiB",
            retry_after=None,
        )


def _file_bytes(file: str) -> int:
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


def _embedding_n_ctx(opened: _Opened) -> int:
    """Max tokens of an input of a model that only embeds."""
    n_ctx = opened.settings.n_ctx or (DEFAULT_N_CTX_IN_PIECES if opened.in_pieces else DEFAULT_N_CTX)
    return min(n_ctx, opened.model.n_ctx_train or n_ctx)


def _n_ctx(settings: EngineSettings, model: LlamaModel, placed: DevicePlan) -> int:
    n_ctx = settings.n_ctx if settings.n_ctx is not None else placed.n_ctx
    if n_ctx is not None:
        return n_ctx
    # "available" still includes the memory for mmap-ed weights.
    free = max(0, psutil.virtual_memory().available - model.size_bytes)
    return default_n_ctx(model.n_ctx_train, kv_bytes_per_token(settings), free, settings.context_bytes)


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


def _describe(opened: _Opened, plan: _Plan, sizes: _Sizes, weights: str, load_seconds: float) -> ModelFacts:
    model, placed, projector, pooling = opened.model, plan.placed, opened.projector, opened.pooling
    used = [part.device for part in placed.shares if part.kind != "cpu"] or placed.llama.devices
    return ModelFacts(
        description=model.description,
        architecture=model.architecture,
        n_ctx=sizes.n_ctx,
        n_ctx_train=model.n_ctx_train,
        n_vocab=model.vocab.n_tokens,
        n_embd=model.n_embd,
        n_params=model.n_params,
        size_bytes=model.size_bytes,
        parallel=sizes.parallel,
        threads=opened.threads.count,
        n_gpu_layers=min(placed.n_gpu_layers, model.n_layer + 1) if used else 0,
        n_layer=model.n_layer,
        device=", ".join(used) or "CPU",
        devices=plan.devices,
        pooling=pooling,
        is_embedding_model=opened.only_embeds,
        is_recurrent=model.is_recurrent,
        special_tokens=model.vocab.special,
        eog_token_ids=model.vocab.eog_ids,
        add_bos=model.vocab.add_bos,
        add_eos=model.vocab.add_eos,
        chat_templates=model.chat_templates(),
        metadata=model.metadata(),
        kv_bytes=0 if opened.only_embeds else sizes.n_ctx * kv_bytes_per_token(opened.settings),
        bytes_per_token=opened.settings.parts.bytes_per_token,
        load_seconds=load_seconds,
        adapters=opened.adapters.facts,
        score_labels=model.score_labels() if pooling == "rank" else (),
        modalities=projector.modalities if projector is not None else (),
        audio_rate=projector.audio_rate if projector is not None else 0,
        projector_fault=opened.projector_fault,
        placement=placed.shares,
        placement_warning=placed.warning,
        weights=weights,
        grows_to=0 if opened.only_embeds else grows_to(opened.settings, sizes.n_ctx, model),
    )
