"""A Scorer weighs options with one model; its ScoringIntake turns requests that score documents or options into jobs.

The intake only reads the vocabulary: the intake thread calls it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import psutil

from jan_serve.core.models import ModelFacts
from jan_serve.engine.decoding import InterruptibleDecode
from jan_serve.engine.embedding.embedder import check_memory
from jan_serve.engine.embedding.input_pooling import EmbedJob
from jan_serve.engine.llama.context import LlamaContext
from jan_serve.engine.llama.model import LlamaModel
from jan_serve.engine.llama.thread_pool import ThreadPool
from jan_serve.engine.scoring.option_job import N_SEQUENCES, OptionJob, OptionScorer, TokenisedQuestion
from jan_serve.engine.scoring.option_tree import OptionTree, SpelledOption
from jan_serve.engine.scoring.scoring_intake import pair_rows
from jan_serve.engine.stats import PhaseClock
from jan_serve.engine.tokenizing import MoreTokens, TextTokenizer, Work
from jan_serve.engine.tokens import shared_prefix
from jan_serve.errors import ContextLengthExceeded, InvalidRequest, UnsupportedOperation
from jan_serve.ipc.messages import EmbedRequest, EngineSettings
from jan_serve.ipc.scoring import AdapterUse, OptionsWeighed, RankRequest, WeighOptions
from jan_serve.placement.device_plan import kv_bytes_per_token

MAX_OPTION_BYTES: Final = 512


class ScoringIntake:
    """Tokenises and checks what one model shall score."""

    def __init__(self, tokenizer: TextTokenizer, *, n_ctx: int, has_head: bool, generates: bool) -> None:
        """n_ctx: max tokens of a prompt. has_head: whether the model scores; generates: whether it writes."""
        self._tokenizer = tokenizer
        self._vocab = tokenizer.vocab
        self._n_ctx = n_ctx
        self._has_head = has_head
        self._generates = generates
        self._pieces: dict[bytes, list[int]] = {}

    def rank(self, request: RankRequest) -> Work[EmbedJob | OptionJob]:
        """Prepare a ranking. Raises InvalidRequest, ContextLengthExceeded, UnsupportedOperation."""
        rows = yield from pair_rows(self._tokenizer, request, self._n_ctx)
        empty = next((index for index, row in enumerate(rows) if not row), None)
        if empty is not None:
            raise InvalidRequest(f"documents: item {empty} and the query are empty", param="documents")
        if self._has_head:
            return EmbedJob(
                EmbedRequest(id=request.id, inputs=(), normalize=False, client=request.client), rows
            )
        self._check_generates()
        options = self._spelled(request.labels)
        return (yield from self._job(request, rows, [options] * len(rows)))

    def weigh(self, request: WeighOptions) -> Work[OptionJob]:
        """Raises InvalidRequest, UnsupportedOperation, ContextLengthExceeded for the first one that is too long."""
        self._check_generates()
        shared: list[int] = []
        rows: list[list[int]] = []
        spelled: dict[tuple[str, ...], list[SpelledOption]] = {}
        for index, question in enumerate(request.questions):
            try:
                if not index:
                    shared = yield from self._shared(request)
                row = shared + (yield from self._ids(question.prompt, self._n_ctx - len(shared)))
            except MoreTokens as more:
                raise ContextLengthExceeded(
                    len(shared) + more.at_least, self._n_ctx, param="questions", item=index, at_least=True
                ) from None
            if not row:
                raise InvalidRequest(f"questions: item {index} has an empty prompt", param="questions")
            if len(row) > self._n_ctx:
                raise ContextLengthExceeded(len(row), self._n_ctx, param="questions", item=index)
            rows.append(row)
            if question.options not in spelled:
                spelled[question.options] = self._spelled(question.options)
            yield None
        return (
            yield from self._job(
                request,
                rows,
                [spelled[question.options] for question in request.questions],
                canonical_only=request.canonical,
                adapters=request.adapters,
                key=request.cache_salt,
            )
        )

    def _shared(self, request: WeighOptions) -> Work[list[int]]:
        """The tokens that all prompts begin with."""
        shared = yield from self._ids(request.shared, self._n_ctx)
        bos = self._vocab.bos_id
        if bos is not None and self._vocab.add_bos and shared[:1] != [bos]:
            shared.insert(0, bos)
        return shared

    def _job(
        self,
        request: RankRequest | WeighOptions,
        rows: Sequence[list[int]],
        options: Sequence[Sequence[SpelledOption]],
        *,
        canonical_only: bool = False,
        adapters: tuple[AdapterUse, ...] = (),
        key: str = "",
    ) -> Work[OptionJob]:
        if not self._pieces:
            self._pieces = yield from self._tokenizer.aside(self._text_pieces)
        questions: list[TokenisedQuestion] = []
        for row, spelled in zip(rows, options, strict=True):
            questions.append(
                TokenisedQuestion(row, OptionTree(spelled, self._pieces, canonical_only=canonical_only))
            )
            yield None
        return OptionJob(
            request.id,
            adapters,
            f"{adapters} {key}",
            questions,
            shared_prefix(rows),
            client=request.client,
        )

    def _check_generates(self) -> None:
        if not self._generates:
            raise UnsupportedOperation("this model does not write text: it cannot choose", param="model")

    def _ids(self, prompt: Sequence[str | tuple[int, ...]], room: int) -> Work[list[int]]:
        """Raises MoreTokens, which counts all pieces."""
        ids: list[int] = []
        for piece in prompt:
            try:
                ids += yield from self._tokenizer.ids(
                    piece, parse_special=True, room=max(0, room - len(ids)), param="questions"
                )
            except MoreTokens as more:
                raise MoreTokens(len(ids) + more.at_least) from None
        return ids

    def _spelled(self, options: Sequence[str]) -> list[SpelledOption]:
        """Vocabularies that write a space before each word may write one before the option.

        Raises InvalidRequest for an option that the vocabulary changes, as one that knows no capitals does.
        """
        texts = [option.encode() for option in options]
        spelled: list[SpelledOption] = []
        for option, text in zip(options, texts, strict=True):
            if len(text) > MAX_OPTION_BYTES:
                raise InvalidRequest(
                    f"options: {option[:40]!r}… has {len(text)} bytes, the limit is {MAX_OPTION_BYTES}",
                    param="options",
                )
            path = tuple(self._vocab.tokenize(option, add_special=False, parse_special=False))
            written = b"".join(self._vocab.piece(token, special=False) for token in path)
            if not path or written not in (text, b" " + text):
                raise InvalidRequest(
                    f"options: the vocabulary of this model cannot write {option[:80]!r}, but"
                    f" {written.decode('utf-8', 'replace')[:80]!r}",
                    param="options",
                )
            if written != text and written in texts:
                raise InvalidRequest(
                    f"options: {option[:80]!r} differs from another one by a space, which this model's vocabulary adds",
                    param="options",
                )
            spelled.append(SpelledOption(tuple(dict.fromkeys((written, text))), path))
        return spelled

    def _text_pieces(self) -> dict[bytes, list[int]]:
        """The tokens of each text. Takes a moment for large vocabularies."""
        found: dict[bytes, list[int]] = {}
        for token, text in enumerate(self._vocab.pieces()):
            if text and not self._vocab.is_control(token):
                found.setdefault(text, []).append(token)
        return found


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
        self._options.advance(job, room, self._decode.embeds(job.request_id, job.adapters, phase))
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
