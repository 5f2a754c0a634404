"""The parts that score documents and options with one model."""

from __future__ import annotations

from typing import Final

import psutil

from jan_serve.core.models.model_facts import ModelFacts
from jan_serve.engine.embedding.embedder_loader import check_memory
from jan_serve.engine.embedding.interruptible_decode import InterruptibleDecode
from jan_serve.engine.llama.context import Batch, LlamaContext
from jan_serve.engine.llama.model import LlamaModel
from jan_serve.engine.llama.thread_pool import ThreadPool
from jan_serve.engine.phase import PhaseClock
from jan_serve.engine.scoring.option_job import N_SEQUENCES, OptionJob, OptionScorer
from jan_serve.engine.scoring.scoring_intake import MAX_OPTION_BYTES, ScoringIntake
from jan_serve.engine.tokenizing import TextTokenizer
from jan_serve.ipc.messages import EngineSettings
from jan_serve.ipc.scoring import OptionsWeighed
from jan_serve.placement.device_plan import kv_bytes_per_token

BATCH_TOKENS: Final = 512
assert BATCH_TOKENS >= MAX_OPTION_BYTES


class Scorer:
    """Weighs options. Scores of a head are the embedder's work. Takes no memory before its first use."""

    batch_tokens = BATCH_TOKENS

    def __init__(self, intake: ScoringIntake, options: OptionScorer, decode: InterruptibleDecode) -> None:
        """intake: for the thread that prepares requests."""
        self.intake = intake
        self._options = options
        self._decode = decode

    def advance(self, job: OptionJob, phase: PhaseClock, *, room: int) -> OptionsWeighed | None:
        """Compute the next batch of a job, of about `room` tokens; blocks. Returns the answer after the last one.

        Raises EngineFailure, InsufficientMemory.
        """

        def decode(context: LlamaContext, batch: Batch) -> bool:
            return self._decode.run(job.request_id, job.adapters, context, batch, phase)

        self._options.advance(job, room, decode)
        return job.answer()


def make_scorer(
    settings: EngineSettings,
    model: LlamaModel,
    facts: ModelFacts,
    decode: InterruptibleDecode,
    threads: ThreadPool,
    tokenizer: TextTokenizer,
) -> Scorer:
    cell_bytes = kv_bytes_per_token(settings)
    on_device = facts.n_gpu_layers > 0  # llama.cpp reports a cache that does not fit

    def create(cells: int) -> LlamaContext:
        if not on_device:
            check_memory(cells, cells * cell_bytes, psutil.virtual_memory().available)
        return LlamaContext(
            model,
            n_ctx=cells,
            n_batch=BATCH_TOKENS,
            n_ubatch=min(BATCH_TOKENS, settings.n_ubatch),
            n_seq_max=N_SEQUENCES,
            threads=threads,
            flash_attn=settings.flash_attn,
            type_k=settings.type_k,
            type_v=settings.type_v,
        )

    intake = ScoringIntake(
        tokenizer,
        n_ctx=facts.n_ctx,
        has_head=facts.pooling == "rank",
        generates=not facts.is_embedding_model and not model.has_encoder,
    )
    return Scorer(intake, OptionScorer(create, BATCH_TOKENS), decode)
