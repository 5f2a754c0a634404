"""Embeddings: inputs to pooled vectors, in batches, through a context of their own."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np
import psutil

from jan_serve.engine.adapters import Adapters
from jan_serve.engine.embed_job import EmbedJob, Floats
from jan_serve.engine.input_pooling import (
    MAX_SEQUENCES,
    PIECE_TOKENS,
    InputPooling,
    InputsInPieces,
    WholeInputs,
)
from jan_serve.engine.llama.context import DECODE_ABORTED, DECODE_OK, Batch, LlamaContext
from jan_serve.engine.llama.model import LlamaModel
from jan_serve.engine.phase import PhaseClock
from jan_serve.errors import ContextLengthExceeded, EngineFailure, InsufficientMemory, InvalidRequest
from jan_serve.ipc.messages import Embedded, EmbedRequest

# Attention over a whole input runs in one batch, and its buffers grow with it: longer inputs need --n-ctx.
DEFAULT_N_CTX = 2048
# In pieces, the cache alone grows with an input.
DEFAULT_N_CTX_IN_PIECES = 8192


@dataclass(frozen=True, slots=True)
class EmbedderSettings:
    """How a model embeds. n_ctx: tokens of an input at most. pooling: mean, cls, last, or rank (then the "vector" is
    the classifier's scores). in_pieces: whether its tokens look back only, so that an input may be cut. cell_bytes: of
    one token in the cache, 0 where there is none."""

    n_ctx: int
    pooling: str
    in_pieces: bool
    threads: int
    flash_attn: str
    cell_bytes: int = 0


class Embedder:
    """Embeds text with one model. The context is made on first use, by the thread that uses it."""

    def __init__(
        self, model: LlamaModel, settings: EmbedderSettings, adapters: Adapters | None = None
    ) -> None:
        self._model = model
        self._adapters = adapters
        self._n_ctx = settings.n_ctx
        self._settings = settings
        self.dimensions = model.n_cls_out if settings.pooling == "rank" else model.n_embd
        self._pooling: InputPooling = (
            InputsInPieces(self._create, settings.pooling, self.dimensions)
            if settings.in_pieces
            else WholeInputs(self._create, settings.n_ctx, self.dimensions)
        )
        self._lock = threading.Lock()
        self._running: tuple[int, LlamaContext] | None = None  # request and context of the decode that runs

    def tokenize(self, request: EmbedRequest) -> list[list[int]]:
        """Ids of every input, with the special tokens that the model wants. May run on another thread.

        Raises ContextLengthExceeded or InvalidRequest, naming the input.
        """
        if self._adapters is not None:
            self._adapters.mark(request.adapters)  # refuses what is not there
        vocab = self._model.vocab
        rows: list[list[int]] = []
        for i, item in enumerate(request.inputs):
            if isinstance(item, str):
                ids = vocab.tokenize(item, add_special=True, parse_special=request.parse_special)
            else:
                ids = list(item)
                bad = next((token for token in ids if not 0 <= token < vocab.n_tokens), None)
                if bad is not None:
                    raise InvalidRequest(
                        f"input: token id {bad} is outside the vocabulary (0 to {vocab.n_tokens - 1})",
                        param="input",
                    )
            if not ids:
                raise InvalidRequest(f"input: item {i} is empty", param="input")
            if len(ids) > self._n_ctx:
                raise ContextLengthExceeded(len(ids), self._n_ctx, param="input", item=i)
            rows.append(ids)
        return rows

    def start(self, request: EmbedRequest) -> EmbedJob:
        """Tokenise the inputs; may run on another thread. Computes nothing yet. Raises as `tokenize`."""
        return EmbedJob(request, self.tokenize(request))

    def advance(self, job: EmbedJob, phase: PhaseClock, *, room: int = PIECE_TOKENS) -> Embedded | None:
        """Compute the next batch of a job; blocks. Returns the answer after the last. Raises EngineFailure and
        InsufficientMemory.

        room: tokens at most, where inputs may be cut.
        """

        def decode(context: LlamaContext, batch: Batch) -> bool:
            return self._decode(job.request, context, batch, phase)

        self._pooling.advance(job, room, decode)
        if not job.is_done:
            return None
        vectors = job.vectors
        if job.request.normalize and self._settings.pooling != "rank":
            vectors = [_normalized(vector) for vector in vectors]
        return Embedded(
            id=job.request.id,
            vectors=tuple(vector.astype("<f4").tobytes() for vector in vectors),
            dimensions=self.dimensions,
            prompt_tokens=job.prompt_tokens,
        )

    def interrupt(self, request_id: int) -> None:
        """Stop the decode that runs now if it is for this request, whose job must be dropped then. Thread-safe."""
        with self._lock:
            if self._running is not None and self._running[0] == request_id:
                self._running[1].abort_flag.set()

    def close(self) -> None:
        """Free the context."""
        self._pooling.close()

    def _decode(self, request: EmbedRequest, context: LlamaContext, batch: Batch, phase: PhaseClock) -> bool:
        if self._adapters is not None:
            self._adapters.apply(context, request.adapters)
        phase.enter("embed")
        with self._lock:
            context.abort_flag.clear()
            self._running = request.id, context
        try:
            code = context.decode(batch)
        finally:
            with self._lock:
                self._running = None
        if code not in (DECODE_OK, DECODE_ABORTED):
            raise EngineFailure(f"llama.cpp could not embed this input (code {code})")
        return code == DECODE_OK

    def _create(self, n_ctx: int) -> LlamaContext:
        in_pieces = self._settings.in_pieces
        needed, available = n_ctx * self._settings.cell_bytes, psutil.virtual_memory().available
        if needed > available:
            raise InsufficientMemory(
                f"embedding {n_ctx} tokens needs {needed / 2**30:.1f} GiB for the KV cache, and {available / 2**30:.1f}"
                " GiB are free: shorter inputs need less",
                retry_after=None,
            )
        return LlamaContext(
            self._model,
            n_ctx=n_ctx,
            n_batch=PIECE_TOKENS if in_pieces else n_ctx,
            n_ubatch=PIECE_TOKENS if in_pieces else n_ctx,
            n_seq_max=MAX_SEQUENCES,
            threads=self._settings.threads,
            embeddings=True,
            pooling="none" if in_pieces else self._settings.pooling,
            flash_attn=self._settings.flash_attn,
        )


def _normalized(vector: Floats) -> Floats:
    """Divided by its L2 norm; a zero vector stays zero."""
    norm = float(np.linalg.norm(vector))
    return vector / np.float32(norm) if norm > 0.0 else vector
