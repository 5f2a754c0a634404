"""Loads a model as the settings and the machine allow."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import psutil

from jan_serve.core.models import ModelFacts
from jan_serve.core.placement import MIN_DEFAULT_N_CTX, LlamaPlacement, default_n_ctx
from jan_serve.engine.cache.cell_allocator import IDLE_CELLS, READ_IDLE_CELLS
from jan_serve.engine.cache.state_cache import StateCache
from jan_serve.engine.cache.state_identity import state_key, weights_of
from jan_serve.engine.decoding import Adapters, InterruptibleDecode
from jan_serve.engine.drafting.draft_model import DraftModel, NextTokenHead, check_vocabularies
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
from jan_serve.engine.llama.threads import ThreadPool, default_threads
from jan_serve.engine.loading.contexts import (
    compute_a_token,
    default_parallel,
    grows_to,
    make_states,
    with_shorter_context,
)
from jan_serve.engine.prompt_media import MediaLayout
from jan_serve.engine.scoring.options import OptionScorer, make_scorer
from jan_serve.engine.scoring.scoring_intake import ScoringIntake
from jan_serve.engine.tokenizing import TextTokenizer
from jan_serve.errors import InsufficientMemory, InvalidModel, SettingsError
from jan_serve.ipc.messages import EngineSettings, LoadModel
from jan_serve.placement.device_plan import ALL_LAYERS, DevicePlan, kv_bytes_per_token, plan_devices
from jan_serve.placement.workload import HEAD_BATCH, HEAD_DRAFT, bytes_beside, wants_head

logger = logging.getLogger(__name__)

_MAX_SEQUENCES = 256  # LLAMA_MAX_SEQ
# Each sequence of a recurrent model has a whole state, not only cells: few are kept.
_RECURRENT_CACHE_SEQUENCES = 4


class LoadedModel(msgspec.Struct):
    """The parts of a loaded model. context: None for a model that only embeds. settings: see `resolved`. decode: of
    contexts beside that one. computes_apart: whether a device computes while llama_decode has returned."""

    model: LlamaModel
    context: LlamaContext | None
    embedder: Embedder
    scorer: OptionScorer
    scoring: ScoringIntake
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
        idle_cells = IDLE_CELLS if on_cpu and has_flash else READ_IDLE_CELLS
    return msgspec.structs.replace(
        settings,
        n_ctx=facts.n_ctx,
        parallel=facts.parallel,
        cache_sequences=cache_sequences,
        idle_cells=idle_cells,
    )


def load(request: LoadModel, on_progress: Callable[[float], bool]) -> LoadedModel:
    """Load the file; blocks. Raises InvalidModel, InsufficientMemory, SettingsError."""
    started = time.monotonic()
    with backend.allocations() as allocated:
        loading = _Loading(request)
        loading.open_files(request.path, on_progress)
        loading.make_context()
        facts = loading.facts(weights_of(request), time.monotonic() - started)
        loaded = loading.assembled(request, facts)
    placement = tuple(
        msgspec.structs.replace(part, allocated=allocated.get(part.device, 0)) for part in facts.placement
    )
    loaded.facts = msgspec.structs.replace(facts, placement=placement)
    return loaded


class _Loading:
    """A load. Each step decides what the next ones read; the settings follow what it decides."""

    def __init__(self, request: LoadModel) -> None:
        """Decide where the parts of the model go."""
        settings = request.settings
        on_cpu = settings.placement.n_gpu_layers == 0 or (settings.device or "").lower() == "cpu"
        missing = {} if on_cpu else connect_peers(settings.rpc)
        self.devices = backend.devices()
        beside = bytes_beside(settings, _file_bytes)
        memory = psutil.virtual_memory().total
        self.placed = plan_devices(settings, backend.accelerators(), memory, beside, missing)
        _check_memory(settings, self.placed, beside)
        if settings.mtp == "auto" and not self.placed.llama.devices:
            # Measured: it does not pay on the CPU (ADR 0016).
            settings = msgspec.structs.replace(settings, mtp="off")
        self.settings = settings

    def open_files(self, path: str, on_progress: Callable[[float], bool]) -> None:
        """The model and its files beside it."""
        settings = self.settings
        if settings.deterministic:
            backend.round_alike()
        self.model = model = LlamaModel(
            path,
            placement=self.placed.llama,
            use_mmap=settings.use_mmap,
            use_mlock=settings.use_mlock,
            use_repack=settings.use_repack and not settings.deterministic,
            with_heads=wants_head(settings),
            on_progress=on_progress,
        )
        self.adapters = Adapters(model, settings.adapters)
        self.threads = ThreadPool(settings.threads or default_threads(model.size_bytes))
        self.pooling, self.only_embeds = _pooling(settings, model)
        if model.is_diffusion and not self.only_embeds:
            raise InvalidModel(
                f"it is a diffusion model ({model.architecture}), which fills in many places of a text at once:"
                " jan-serve serves models that write one token after another"
            )
        self.projector, self.projector_fault = (None, "") if self.only_embeds else self._open_projector()
        if self.projector is not None and not self.projector.is_causal:
            # The cells of an image attend to each other, so they are one micro-batch.
            least = self.projector.largest_part()
            self.settings = msgspec.structs.replace(
                settings, n_batch=max(settings.n_batch, least), n_ubatch=max(settings.n_ubatch, least)
            )
        self.in_pieces = self.only_embeds and reads_in_pieces(model, None, self.pooling)

    def _open_projector(self) -> tuple[Projector | None, str]:
        """The projector, on a device of this machine if the model is, and why one that is not required is useless.
        Raises InvalidModel."""
        file, device = self.settings.projector, self.placed.local
        if file is None:
            return None, ""
        use_gpu, threads = device is not None, self.threads.count
        try:
            return Projector(file, self.model, threads=threads, use_gpu=use_gpu, device=device), ""
        except InvalidModel as error:
            if self.settings.projector_required:
                raise
            logger.warning("the model is served for text only: %s", error.message)
            return None, error.message

    def make_context(self) -> None:
        """Decide the sizes. The context is shorter if memory demands it, and has computed a token."""
        settings, model = self.settings, self.model
        n_ctx = self._embedding_n_ctx() if self.only_embeds else self._n_ctx()
        # llama.cpp asserts a cell for each sequence.
        self.parallel = min(settings.parallel or default_parallel(n_ctx), n_ctx)
        kept = min(settings.cache_sequences, _MAX_SEQUENCES - self.parallel, n_ctx - self.parallel)
        self.cache_sequences = min(kept, _RECURRENT_CACHE_SEQUENCES) if model.is_recurrent else kept
        self.context: LlamaContext | None = None
        if self.only_embeds:
            trial = LlamaContext.tiny(model, self.threads)
            compute_a_token(trial)
            trial.close()
        else:
            self.context, n_ctx = with_shorter_context(
                lambda length: self._context(model, settings, length, self.parallel + self.cache_sequences),
                n_ctx,
                min_n_ctx=n_ctx if settings.n_ctx is not None else MIN_DEFAULT_N_CTX,
            )
            compute_a_token(self.context)
        self.n_ctx = n_ctx

    def _embedding_n_ctx(self) -> int:
        """Max tokens of an input of a model that only embeds."""
        n_ctx = self.settings.n_ctx or (DEFAULT_N_CTX_IN_PIECES if self.in_pieces else DEFAULT_N_CTX)
        return min(n_ctx, self.model.n_ctx_train or n_ctx)

    def _n_ctx(self) -> int:
        settings, model = self.settings, self.model
        n_ctx = settings.n_ctx if settings.n_ctx is not None else self.placed.n_ctx
        if n_ctx is not None:
            return n_ctx
        # "available" still includes the memory for mmap-ed weights.
        free = max(0, psutil.virtual_memory().available - model.size_bytes)
        return default_n_ctx(model.n_ctx_train, kv_bytes_per_token(settings), free, settings.context_bytes)

    def _context(
        self,
        model: LlamaModel,
        settings: EngineSettings,
        n_ctx: int,
        n_seq_max: int,
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
        is_headed = model.n_heads_ahead == 1 and wants_head(settings) and head_of is None
        return LlamaContext(
            model,
            n_ctx=n_ctx,
            n_batch=min(max(settings.n_batch, n_seq_max), max(n_ctx, n_seq_max)),
            n_ubatch=settings.n_ubatch,
            n_seq_max=n_seq_max,
            threads=self.threads,
            flash_attn=settings.flash_attn,
            type_k=settings.type_k,
            type_v=settings.type_v,
            head_of=head_of,
            max_rollback=HEAD_DRAFT if model.is_recurrent and is_headed else 0,
        )

    def facts(self, weights: str, load_seconds: float) -> ModelFacts:
        model, placed, projector, vocab = self.model, self.placed, self.projector, self.model.vocab
        used = [part.device for part in placed.shares if part.kind != "cpu"] or placed.llama.devices
        return ModelFacts(
            description=model.description,
            architecture=model.architecture,
            n_ctx=self.n_ctx,
            n_ctx_train=model.n_ctx_train,
            n_vocab=vocab.n_tokens,
            n_embd=model.n_embd,
            n_params=model.n_params,
            size_bytes=model.size_bytes,
            parallel=self.parallel,
            threads=self.threads.count,
            n_gpu_layers=min(placed.n_gpu_layers, model.n_layer + 1) if used else 0,
            n_layer=model.n_layer,
            device=", ".join(used) or "CPU",
            devices=self.devices,
            pooling=self.pooling,
            is_embedding_model=self.only_embeds,
            is_recurrent=model.is_recurrent,
            special_tokens=vocab.special,
            eog_token_ids=vocab.eog_ids,
            add_bos=vocab.add_bos,
            add_eos=vocab.add_eos,
            chat_templates=model.chat_templates(),
            metadata=model.metadata(),
            kv_bytes=0 if self.only_embeds else self.n_ctx * kv_bytes_per_token(self.settings),
            bytes_per_token=self.settings.parts.bytes_per_token,
            load_seconds=load_seconds,
            adapters=self.adapters.facts,
            score_labels=model.score_labels() if self.pooling == "rank" else (),
            modalities=projector.modalities if projector is not None else (),
            audio_rate=projector.audio_rate if projector is not None else 0,
            projector_fault=self.projector_fault,
            placement=placed.shares,
            placement_warning=placed.warning,
            weights=weights,
            grows_to=0 if self.only_embeds else grows_to(self.settings, self.n_ctx, model),
        )

    def assembled(self, request: LoadModel, facts: ModelFacts) -> LoadedModel:
        """With what needs no memory before its use, the tiers of the cache, and what drafts."""
        settings, model, context, threads = self.settings, self.model, self.context, self.threads
        placed = self.placed
        tokenizer, decode = TextTokenizer(model.vocab), InterruptibleDecode(self.adapters)
        draft = media = None
        states, in_pieces = StateCache(0), self.in_pieces
        if context is not None:
            in_pieces = reads_in_pieces(model, context, facts.pooling)
            states = make_states(request, context, max(context.n_ctx, facts.longest_ctx))
            draft = self._drafting(context)
            if self.projector is not None:
                identity = state_key([Path(settings.projector or "")])
                media = MediaLayout(self.projector, identity, most_together=context.n_ubatch)
        return LoadedModel(
            model=model,
            context=context,
            embedder=make_embedder(settings, model, facts, decode, threads, tokenizer, in_pieces=in_pieces),
            scorer=make_scorer(settings, model, facts, threads),
            scoring=ScoringIntake(
                tokenizer,
                n_ctx=facts.n_ctx,
                has_head=facts.pooling == "rank",
                generates=not facts.is_embedding_model and not model.has_encoder,
            ),
            facts=facts,
            settings=resolved(settings, facts, self.cache_sequences),
            states=states,
            adapters=self.adapters,
            decode=decode,
            computes_apart=placed.is_on_one_device and backend.computes_apart(placed.llama.devices[0]),
            draft_model=draft,
            projector=self.projector,
            media=media,
        )

    def _drafting(self, context: LlamaContext) -> DraftModel | None:
        """The draft model that the settings name; otherwise the model's own head, if it is wanted."""
        settings, model = self.settings, self.model
        if settings.draft_path is not None:
            return self._draft_model(settings.draft_path, context)
        # Several heads take turns, each with states of the one before.
        is_useful = wants_head(settings) and model.n_heads_ahead == 1
        if not is_useful or (model.is_recurrent and not context.max_rollback):
            return None
        own = msgspec.structs.replace(settings, n_batch=HEAD_BATCH, n_ubatch=HEAD_BATCH)
        head = self._context(model, own, context.n_ctx, self.parallel, head_of=context)
        return NextTokenHead(head, context, self.parallel)

    def _draft_model(self, path: str, context: LlamaContext) -> DraftModel:
        settings, device, name = self.settings, self.placed.local, Path(path).name
        model = LlamaModel(
            path,
            placement=LlamaPlacement(ALL_LAYERS, (device,)) if device is not None else None,
            use_mmap=settings.use_mmap,
            use_mlock=settings.use_mlock,
            use_repack=settings.use_repack,
        )
        if model.is_recurrent:
            raise SettingsError(
                f"draft_model: {name} has recurrent layers, which cannot drop a rejected draft"
            )
        check_vocabularies(context.model.vocab, model.vocab, name)
        own = self._context(model, settings, context.n_ctx, self.parallel)
        compute_a_token(own)
        return DraftModel(own, self.parallel, context.n_vocab)


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
    """The pooling, and whether the model can only embed. llama.cpp pools by mean if the model names none. "none", which
    has a vector per token and not one per input, is kept where the settings ask for it."""
    named = model.default_pooling()
    causal = model.metadata().get(f"{model.architecture}.attention.causal", "true")
    embedding_only = named in ("mean", "cls", "last", "rank") or causal == "false"
    pooling = settings.pooling or named
    known = pooling in ("mean", "cls", "last", "rank") or settings.pooling is not None
    return (pooling if known else "mean"), embedding_only
