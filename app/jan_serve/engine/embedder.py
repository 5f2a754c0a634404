"""Embeddings: inputs to pooled vectors, in batches, through a context of their own."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from jan_serve.engine.adapters import Adapters
from jan_serve.engine.llama.context import DECODE_OK, Batch, LlamaContext
from jan_serve.engine.llama.model import LlamaModel
from jan_serve.engine.phase import PhaseClock
from jan_serve.errors import ContextLengthExceeded, EngineFailure, InvalidRequest
from jan_serve.ipc.messages import Embedded, EmbedRequest

Floats = npt.NDArray[np.float32]

# Attention over a whole input runs in one ubatch, and its buffers grow with it: longer inputs need --n-ctx.
DEFAULT_N_CTX = 2048
MAX_SEQUENCES = 16


@dataclass(slots=True, eq=False)
class EmbedJob:
    """An EmbedRequest under way: batches that are not computed yet, vectors that are."""

    request: EmbedRequest
    groups: deque[list[list[int]]]
    vectors: list[Floats] = field(default_factory=list[Floats])
    prompt_tokens: int = field(init=False)

    def __post_init__(self) -> None:
        self.prompt_tokens = sum(len(row) for group in self.groups for row in group)


class Embedder:
    """Embeds text with one model. The context is made on first use, by the thread that uses it.

    pooling: mean, cls, last, or rank (then the "vector" is the classifier's scores).
    """

    def __init__(
        self,
        model: LlamaModel,
        *,
        n_ctx: int,
        pooling: str,
        threads: int,
        flash_attn: str,
        adapters: Adapters | None = None,
    ) -> None:
        self._model = model
        self._adapters = adapters
        self._n_ctx = n_ctx
        self._pooling = pooling
        self._threads = threads
        self._flash_attn = flash_attn
        self._context: LlamaContext | None = None
        self._batch: Batch | None = None
        self.dimensions = model.n_cls_out if pooling == "rank" else model.n_embd

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
                raise ContextLengthExceeded(
                    len(ids),
                    self._n_ctx,
                    param="input",
                    message=f"input: item {i} has {len(ids)} tokens, and this model embeds {self._n_ctx} at most",
                )
            rows.append(ids)
        return rows

    def start(self, request: EmbedRequest, rows: list[list[int]]) -> EmbedJob:
        """Group tokenised inputs into batches. Computes nothing yet."""
        groups: list[list[list[int]]] = []
        size = 0
        for row in rows:
            if not groups or size + len(row) > self._n_ctx or len(groups[-1]) == MAX_SEQUENCES:
                groups.append([])
                size = 0
            groups[-1].append(row)
            size += len(row)
        return EmbedJob(request, deque(groups))

    def advance(self, job: EmbedJob, phase: PhaseClock) -> Embedded | None:
        """Compute the next batch of a job; blocks. Returns the answer after the last. Raises EngineFailure."""
        context, batch = self._open()
        if self._adapters is not None:
            self._adapters.apply(context, job.request.adapters)
        job.vectors += self._compute(context, batch, job.groups.popleft(), phase)
        if job.groups:
            return None
        vectors = job.vectors
        if job.request.normalize and self._pooling != "rank":
            vectors = [_normalized(vector) for vector in vectors]
        return Embedded(
            id=job.request.id,
            vectors=tuple(vector.astype("<f4").tobytes() for vector in vectors),
            dimensions=self.dimensions,
            prompt_tokens=job.prompt_tokens,
        )

    def close(self) -> None:
        """Free the context."""
        if self._context is not None:
            self._context.close()
            self._context = None

    def _open(self) -> tuple[LlamaContext, Batch]:
        if self._context is None or self._batch is None:
            self._context = LlamaContext(
                self._model,
                n_ctx=self._n_ctx,
                n_batch=self._n_ctx,
                n_ubatch=self._n_ctx,
                n_seq_max=MAX_SEQUENCES,
                threads=self._threads,
                embeddings=True,
                pooling=self._pooling,
                flash_attn=self._flash_attn,
            )
            self._batch = Batch(self._n_ctx)
        return self._context, self._batch

    def _compute(
        self, context: LlamaContext, batch: Batch, group: list[list[int]], phase: PhaseClock
    ) -> list[Floats]:
        batch.clear()
        for seq_id, row in enumerate(group):
            batch.add(np.asarray(row, np.int32), 0, seq_id, outputs="all")
        phase.enter("embed")
        context.clear()
        code = context.decode(batch)
        if code != DECODE_OK:
            raise EngineFailure(f"llama.cpp could not embed this input (code {code})")
        return [context.sequence_embedding(seq_id, self.dimensions) for seq_id in range(len(group))]


def _normalized(vector: Floats) -> Floats:
    """Divided by its L2 norm; a zero vector stays zero."""
    norm = float(np.linalg.norm(vector))
    return vector / np.float32(norm) if norm > 0.0 else vector
