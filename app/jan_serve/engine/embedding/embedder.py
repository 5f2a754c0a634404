"""An Embedder embeds the inputs of requests, batch by batch; `make_embedder` chooses how for a model."""

from __future__ import annotations

import numpy as np
import psutil

from jan_serve.core.models import ModelFacts
from jan_serve.engine.decoding import InterruptibleDecode
from jan_serve.engine.embedding.input_pooling import (
    MAX_SEQUENCES,
    EmbedJob,
    Floats,
    InputsInPieces,
    LastTokenScores,
    WholeInputs,
)
from jan_serve.engine.llama.context import LlamaContext
from jan_serve.engine.llama.model import LlamaModel
from jan_serve.engine.llama.threads import ThreadPool
from jan_serve.engine.stats import PhaseClock
from jan_serve.engine.tokenizing import TextTokenizer, Work, within
from jan_serve.errors import InsufficientMemory, InvalidRequest
from jan_serve.ipc.messages import Embedded, EmbedRequest, EngineSettings

InputPooling = WholeInputs | InputsInPieces | LastTokenScores


class Embedder:
    """Embeds text with one model. The thread that uses a context creates it, on first use."""

    def __init__(
        self,
        tokenizer: TextTokenizer,
        inputs: InputPooling,
        decode: InterruptibleDecode,
        *,
        n_ctx: int,
        dimensions: int,
        piece_tokens: int,
        scores: bool = False,
    ) -> None:
        """n_ctx: max tokens of an input. dimensions: values of a vector. scores: they are a classifier's. piece_tokens:
        max tokens of a batch if inputs may be cut."""
        self.tokenizer = tokenizer
        self._inputs = inputs
        self._n_ctx = n_ctx
        self.dimensions = dimensions
        self.piece_tokens = piece_tokens
        self._scores = scores
        self._decode = decode

    def tokenize(self, request: EmbedRequest) -> Work[list[list[int]]]:
        """Ids of every input, with the model's special tokens. The intake thread. Raises ContextLengthExceeded or
        InvalidRequest, which name the input."""
        self._decode.check(request.adapters)
        rows: list[list[int]] = []
        for i, item in enumerate(request.inputs):
            work = self.tokenizer.ids(
                item, add_special=True, parse_special=request.parse_special, room=self._n_ctx, param="input"
            )
            ids = yield from within(work, self._n_ctx, param="input", item=i)
            if not ids:
                raise InvalidRequest(f"input: item {i} is empty", param="input")
            rows.append(ids)
        return rows

    def start(self, request: EmbedRequest) -> Work[EmbedJob]:
        """Tokenise the inputs; computes nothing yet. The intake thread. Raises as `tokenize`."""
        return EmbedJob(request, (yield from self.tokenize(request)))

    def advance(self, job: EmbedJob, phase: PhaseClock, *, room: int | None = None) -> Embedded | None:
        """Compute the next batch of a job; blocks. Returns the answer after the last one, otherwise None.

        room: max tokens if inputs may be cut; None: piece_tokens. Raises EngineFailure, InsufficientMemory.
        """
        decode = self._decode.embeds(job.request.id, job.request.adapters, phase)
        self._inputs.advance(job, self.piece_tokens if room is None else room, decode)
        if not job.is_done:
            return None
        vectors = job.vectors
        if job.request.normalize and not self._scores:
            vectors = [_normalized(vector) for vector in vectors]
        return Embedded(
            id=job.request.id,
            vectors=tuple(vector.astype("<f4").tobytes() for vector in vectors),
            dimensions=self.dimensions,
            prompt_tokens=job.prompt_tokens,
        )


def _normalized(vector: Floats) -> Floats:
    """Divide by the L2 norm; a zero vector stays zero."""
    norm = float(np.linalg.norm(vector))
    return vector / np.float32(norm) if norm > 0.0 else vector


# Attention over a whole input runs in one batch, whose buffers grow with it: longer inputs need --n-ctx.
DEFAULT_N_CTX = 2048
# In pieces, only the cache grows with an input.
DEFAULT_N_CTX_IN_PIECES = 8192
# llama.cpp computes logits beside the embedding of each token of a batch: 4 bytes per entry of the vocabulary. Devices
# are faster with more tokens.
PIECE_TOKENS = 128
DEVICE_PIECE_TOKENS = 512
# Their graphs attend within a batch only, although llama.cpp gives them a cache (build_attn_inp_no_cache).
_WITHOUT_CACHE = frozenset({"llama-embed"})
# Where llama.cpp's scoring head reads the last token; elsewhere it reads the first one (llm_graph_input_cls).
_SCORED_AT_END = frozenset({"qwen3", "qwen3vl"})


def reads_in_pieces(model: LlamaModel, context: LlamaContext | None, pooling: str) -> bool:
    """Whether inputs may be cut: causal attention over a cache. Most scoring heads need whole inputs. Asks llama.cpp,
    because the file does not say it for all architectures. context: of the model, if it has one."""
    if pooling == "rank" and model.architecture not in _SCORED_AT_END:
        return False
    if model.has_encoder or model.architecture in _WITHOUT_CACHE:
        return False
    if context is not None:
        return context.is_causal
    probe = LlamaContext.tiny(model, ThreadPool(1))
    try:
        return probe.is_causal
    finally:
        probe.close()


def make_embedder(
    settings: EngineSettings,
    model: LlamaModel,
    facts: ModelFacts,
    decode: InterruptibleDecode,
    threads: ThreadPool,
    tokenizer: TextTokenizer,
    *,
    in_pieces: bool,
) -> Embedder:
    """The embedder of a loaded model. Takes no memory before its first use."""
    n_ctx = facts.n_ctx
    if not facts.is_embedding_model:
        n_ctx = input_limit(n_ctx, in_pieces=in_pieces, is_chosen=settings.n_ctx is not None)
    on_device = facts.n_gpu_layers > 0
    piece_tokens = DEVICE_PIECE_TOKENS if on_device else PIECE_TOKENS
    # On a device llama.cpp reports a cache that does not fit.
    cell_bytes = 0 if on_device else 2 * (settings.k_elements + settings.v_elements)
    size = model.n_cls_out if facts.pooling == "rank" else model.n_embd

    def create(
        n_ctx: int,
        n_batch: int,
        pooling: str,
        *,
        n_seq_max: int = MAX_SEQUENCES,
        type_k: str = "f16",
        type_v: str = "f16",
    ) -> LlamaContext:
        return LlamaContext(
            model,
            n_ctx=n_ctx,
            n_batch=n_batch,
            n_ubatch=n_batch,
            n_seq_max=n_seq_max,
            threads=threads,
            embeddings=True,
            pooling=pooling,
            flash_attn=settings.flash_attn,
            type_k=type_k,
            type_v=type_v,
        )

    def create_for_pieces(n_ctx: int) -> LlamaContext:
        check_memory(n_ctx - piece_tokens, n_ctx * cell_bytes, psutil.virtual_memory().available)
        return create(n_ctx, piece_tokens, "none")

    def create_for_scores(n_ctx: int) -> LlamaContext:
        check_memory(n_ctx, n_ctx * cell_bytes, psutil.virtual_memory().available)
        return create(
            n_ctx,
            piece_tokens,
            "rank",
            n_seq_max=MAX_SEQUENCES + 1,
            type_k=settings.type_k,
            type_v=settings.type_v,
        )

    inputs: InputPooling = WholeInputs(lambda length: create(length, length, facts.pooling), n_ctx, size)
    if in_pieces and facts.pooling == "rank":
        inputs = LastTokenScores(create_for_scores, size, piece_tokens)
    elif in_pieces:
        inputs = InputsInPieces(create_for_pieces, facts.pooling, size, piece_tokens)
    return Embedder(
        tokenizer,
        inputs,
        decode,
        n_ctx=n_ctx,
        dimensions=size,
        piece_tokens=piece_tokens,
        scores=facts.pooling == "rank",
    )


def input_limit(n_ctx: int, *, in_pieces: bool, is_chosen: bool) -> int:
    """Max tokens of an input for a chat model. is_chosen: whether the user set `n_ctx`."""
    if in_pieces and is_chosen:
        return n_ctx
    return min(n_ctx, DEFAULT_N_CTX_IN_PIECES if in_pieces else DEFAULT_N_CTX)


def check_memory(n_tokens: int, needed: int, available: int) -> None:
    """Raises InsufficientMemory if a KV cache for inputs of `n_tokens` needs more than the available bytes."""
    if needed > available:
        raise InsufficientMemory(
            f"input: {n_tokens} tokens need {needed / 2**30:.1f} GiB for their KV cache, and"
            f" {available / 2**30:.1f} GiB are free: shorter inputs need less",
            retry_after=None,
        )
