"""Embeds the inputs of requests, batch by batch."""

from __future__ import annotations

import numpy as np

from jan_serve.engine.embedding.input_pooling import EmbedJob, Floats, InputsInPieces, WholeInputs
from jan_serve.engine.embedding.interruptible_decode import InterruptibleDecode
from jan_serve.engine.embedding.last_token_scores import LastTokenScores
from jan_serve.engine.llama.context import Batch, LlamaContext
from jan_serve.engine.phase import PhaseClock
from jan_serve.engine.tokenizing import MoreTokens, TextTokenizer, Work
from jan_serve.errors import ContextLengthExceeded, InvalidRequest
from jan_serve.ipc.messages import Embedded, EmbedRequest

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
        """inputs: computes the vectors. n_ctx: max tokens of an input. dimensions: values of a vector.

        piece_tokens: max tokens of a batch if inputs may be cut. scores: the vectors are a classifier's scores.
        """
        self.tokenizer = tokenizer
        self._inputs = inputs
        self._n_ctx = n_ctx
        self.dimensions = dimensions
        self.piece_tokens = piece_tokens
        self._scores = scores
        self._decode = decode

    def tokenize(self, request: EmbedRequest) -> Work[list[list[int]]]:
        """Ids of every input, with the model's special tokens. The intake thread.

        Raises ContextLengthExceeded or InvalidRequest, which name the input.
        """
        self._decode.check(request.adapters)
        rows: list[list[int]] = []
        for i, item in enumerate(request.inputs):
            try:
                ids = yield from self.tokenizer.ids(
                    item,
                    add_special=True,
                    parse_special=request.parse_special,
                    room=self._n_ctx,
                    param="input",
                )
            except MoreTokens as more:
                raise ContextLengthExceeded(
                    more.at_least, self._n_ctx, param="input", item=i, at_least=True
                ) from None
            if not ids:
                raise InvalidRequest(f"input: item {i} is empty", param="input")
            if len(ids) > self._n_ctx:
                raise ContextLengthExceeded(len(ids), self._n_ctx, param="input", item=i)
            rows.append(ids)
        return rows

    def start(self, request: EmbedRequest) -> Work[EmbedJob]:
        """Tokenise the inputs; computes nothing yet. The intake thread. Raises as `tokenize`."""
        return EmbedJob(request, (yield from self.tokenize(request)))

    def advance(self, job: EmbedJob, phase: PhaseClock, *, room: int | None = None) -> Embedded | None:
        """Compute the next batch of a job; blocks. Returns the answer after the last one, otherwise None.

        room: max tokens if inputs may be cut; None: piece_tokens. Raises EngineFailure, InsufficientMemory.
        """

        def decode(context: LlamaContext, batch: Batch) -> bool:
            return self._decode.run(job.request.id, job.request.adapters, context, batch, phase)

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
