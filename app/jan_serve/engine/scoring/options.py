"""Weighs the options of questions that branch from one prompt, batch by batch, in a context of its own.

OptionTree has the tokenisations of the options of one question, and the probabilities of their paths. That of an
option is that of all token sequences that spell it: the answer begins with the option, at the end of a token, and
with no longer option. A sequence counts for the last option that it passes.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import psutil

from jan_serve.core.models import ModelFacts
from jan_serve.engine.embedding.embedder import check_memory
from jan_serve.engine.embedding.input_pooling import (
    MAX_SEQUENCES,
    Decode,
    GrowingContext,
    group_cells,
    group_size,
    unread,
)
from jan_serve.engine.llama.context import Batch, LlamaContext
from jan_serve.engine.llama.model import LlamaModel
from jan_serve.engine.llama.threads import ThreadPool
from jan_serve.engine.tokens import common_prefix
from jan_serve.ipc.messages import EngineSettings
from jan_serve.ipc.scoring import AdapterUse, OptionsWeighed, OptionWeights
from jan_serve.placement.device_plan import kv_bytes_per_token

Floats = npt.NDArray[np.float32]
Path = tuple[int, ...]

MAX_NODES: Final = 96
"""Most paths of a question that are computed, beside those of the vocabulary's own tokenisations."""
NEGLIGIBLE: Final = 1e-6  # a share of the options' probability below which a path is not followed
_EXACT: Final = 1e-4  # the share that may be missing in a sum of all tokenisations


class SpelledOption(NamedTuple):
    """An option as text and as tokens. spellings: the texts that count as it, as bytes. canonical: the vocabulary's own
    tokenisation, which spells one of them."""

    spellings: tuple[bytes, ...]
    canonical: Path


class _Node(NamedTuple):
    """A path. passed: the option that it has spelled last."""

    spelled: bytes
    log_p: float
    passed: int | None
    is_canonical: bool


class OptionTree:
    """Give it the logits after the paths of `next_paths` and their `missing` beginnings, until there are none."""

    # longest: max tokens of a path. counts: by option, the tokenisations that were added up.

    def __init__(
        self, options: Sequence[SpelledOption], pieces: Mapping[bytes, Sequence[int]], *, canonical_only: bool
    ) -> None:
        """pieces: the tokens of each text, without control tokens."""
        self._options = options
        self._pieces = pieces
        self._canonical_only = canonical_only
        paths = [option.canonical for option in options]
        self._inner: set[Path] = {path[:end] for path in paths for end in range(len(path))}
        self._ends = set(paths)
        followed = {path[:-1] for path in self._inner if path}
        self._chains = sorted(self._inner - followed)
        self._texts = {text: index for index, option in enumerate(options) for text in option.spellings}
        self._nodes: dict[Path, _Node] = {(): _Node(b"", 0.0, None, is_canonical=True)}
        self._all = [-math.inf] * len(options)
        self._canonical = [-math.inf] * len(options)
        self._removed = [-math.inf] * len(options)
        self._removed_canonical = [-math.inf] * len(options)
        self.counts = [0] * len(options)
        self._waiting: list[tuple[float, int, Path]] = []
        self._order = itertools.count()
        self._num_followed = 0
        self.longest = max(len(text) for text in self._texts)
        self._computed: set[Path] = set()

    def next_paths(self, most: int) -> list[Path]:
        """The canonical paths, then the others, the most probable first."""
        if self._chains:
            taken, self._chains = self._chains[:most], self._chains[most:]
            return taken
        taken: list[Path] = []
        while self._waiting and len(taken) < most and self._num_followed < MAX_NODES:
            negative, _, path = self._waiting[0]
            if -negative < self._total() + math.log(NEGLIGIBLE):
                break
            heapq.heappop(self._waiting)
            self._num_followed += 1
            taken.append(path)
        return taken

    def missing(self, path: Path) -> list[Path]:
        """The beginnings of a path, and the path itself, whose logits are still needed, the shortest first."""
        beginnings = [path[:end] for end in range(len(path) + 1)]
        return [beginning for beginning in beginnings if beginning not in self._computed]

    def add_logits(self, path: Path, logits: Floats) -> None:
        """The logits after a path: its next tokens get their probabilities. Ignored if they are known."""
        if path in self._computed:
            return
        node = self._nodes[path]
        self._computed.add(path)
        highest = float(logits.max())
        log_sum = highest + math.log(float(np.exp(logits - np.float32(highest)).sum(dtype=np.float64)))
        for token, text, ends, goes_on in self._steps(node.spelled):
            log_p = node.log_p + float(logits[token]) - log_sum
            next_path = (*path, token)
            is_canonical = node.is_canonical and (next_path in self._inner or next_path in self._ends)
            spelled = self._texts[text] if ends else None
            if spelled is not None:
                self._count(spelled, node.passed, log_p, is_canonical=is_canonical)
            if goes_on:
                passed = node.passed if spelled is None else spelled
                self._nodes[next_path] = _Node(text, log_p, passed, is_canonical=is_canonical)
                if not self._canonical_only and next_path not in self._inner:
                    heapq.heappush(self._waiting, (-log_p, next(self._order), next_path))

    def result(self) -> tuple[list[float], bool]:
        """Logarithm of the probability of each option, and whether all tokenisations are in it."""
        missing = _log_add(-negative for negative, _, _ in self._waiting)
        is_exact = not self._canonical_only and missing <= self._total() + math.log(_EXACT)
        sums, removed = (self._all, self._removed) if is_exact else (self._canonical, self._removed_canonical)
        if not is_exact:
            self.counts = [1] * len(self._options)
        return [_log_subtract(one, other) for one, other in zip(sums, removed, strict=True)], is_exact

    def _steps(self, spelled: bytes) -> Iterator[tuple[int, bytes, bool, bool]]:
        """The tokens that continue a spelling: with the text so far, whether it is an option, whether one goes on."""
        texts = [text for text in self._texts if text.startswith(spelled) and len(text) > len(spelled)]
        found = {text[:end] for text in texts for end in range(len(spelled) + 1, len(text) + 1)}
        for text in found:
            goes_on = any(other.startswith(text) and len(other) > len(text) for other in texts)
            for token in self._pieces.get(text[len(spelled) :], ()):
                yield token, text, text in self._texts, goes_on

    def _count(self, option: int, passed: int | None, log_p: float, *, is_canonical: bool) -> None:
        self.counts[option] += 1
        tables = [(self._all, self._removed)]
        if is_canonical:
            tables.append((self._canonical, self._removed_canonical))
        for sums, removed in tables:
            sums[option] = _log_add((sums[option], log_p))
            if passed is not None and passed != option:
                removed[passed] = _log_add((removed[passed], log_p))

    def _total(self) -> float:
        return _log_add(self._all)


def _log_add(values: Iterator[float] | Sequence[float]) -> float:
    numbers = [value for value in values if value > -math.inf]
    if not numbers:
        return -math.inf
    highest = max(numbers)
    return highest + math.log(math.fsum(math.exp(value - highest) for value in numbers))


def _log_subtract(value: float, part: float) -> float:
    if part == -math.inf:
        return value
    rest = -math.expm1(part - value)
    return value + math.log(rest) if rest > 0.0 else -math.inf


BRANCHES: Final = MAX_SEQUENCES  # questions in the cache at once
PATHS: Final = 16  # paths of options in a batch
PREFIX: Final = BRANCHES + PATHS
"""The sequence of the shared prompt. Those of the questions begin at 0, those of the paths at BRANCHES."""
N_SEQUENCES: Final = PREFIX + 1
BATCH_TOKENS: Final = 512


class TokenisedQuestion(NamedTuple):
    """row: the tokens of the whole prompt."""

    row: list[int]
    tree: OptionTree


class OptionJob(msgspec.Struct, eq=False):
    """A running request. Only the engine thread changes it, after `start`.

    num_shared: tokens of the prompt that all questions begin with. key: prompts with another one share no prefix.
    num_shared_read: those of them that are in the cache; None before the first batch. num_done: finished questions.
    num_read: tokens of the current group that are in the cache.
    """

    request_id: int
    adapters: tuple[AdapterUse, ...]
    key: str
    questions: Sequence[TokenisedQuestion]
    num_shared: int
    num_shared_read: int | None = None
    num_cached: int = 0
    num_done: int = 0
    num_read: int = 0
    answers: list[OptionWeights] = msgspec.field(default_factory=list[OptionWeights])
    client: str = ""
    background: bool = False

    @property
    def num_finished(self) -> int:
        return self.num_done

    def pause(self) -> None:
        """Let another job come between, after a finished group: the shared prompt may have to be read again."""
        self.num_shared_read = None

    @property
    def prompt_tokens(self) -> int:
        return self.num_shared + sum(len(question.row) - self.num_shared for question in self.questions)

    def answer(self) -> OptionsWeighed | None:
        if len(self.answers) < len(self.questions):
            return None
        return OptionsWeighed(
            id=self.request_id,
            answers=tuple(self.answers),
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.num_cached,
        )


class OptionScorer:
    """Computes jobs one after the other. The shared prompt of the last one stays in the cache for the next."""

    def __init__(self, create: Callable[[int], LlamaContext], batch_tokens: int) -> None:
        """create: see GrowingContext. batch_tokens: max tokens of a batch; at least those of a path of options."""
        self._batch = Batch(max(batch_tokens, BRANCHES))
        self._contexts = GrowingContext(create, self._batch.capacity)
        self._key, self._kept = "", np.zeros(0, np.int32)

    def advance(self, job: OptionJob, room: int, decode: Decode) -> None:
        """Compute the next batch, of about `room` tokens: of the shared prompt, of questions, or of options. Blocks.
        Raises InsufficientMemory and the errors of `decode`."""
        context = self._open(job)
        self._batch.clear()
        room = min(room, self._batch.capacity)
        assert job.num_shared_read is not None
        if job.num_shared_read < job.num_shared:
            self._read_shared(job, job.num_shared_read, context, room, decode)
            return
        waiting = job.questions[job.num_done :]
        group = waiting[: group_size([len(question.row) - job.num_shared for question in waiting])]
        if job.num_read < sum(len(question.row) - job.num_shared for question in group):
            self._read_questions(job, group, context, room, decode)
        else:
            self._follow_paths(job, group, context, room, decode)

    def _open(self, job: OptionJob) -> LlamaContext:
        """The context, with what the last job left of the shared prompt."""
        if job.num_shared_read is not None:
            return self._contexts.open(0)
        before, context = self._contexts.current, self._contexts.open(_cells(job))
        if context is not before:
            self._key, self._kept = "", np.zeros(0, np.int32)
        for seq_id in range(PREFIX):
            context.remove(seq_id)
        shared = np.asarray(job.questions[0].row[: job.num_shared], np.int32)
        same = common_prefix(self._kept, shared) if self._key == job.key else 0
        # Also what an aborted batch has left after them.
        if not same or not context.truncate(PREFIX, same):
            same = 0
            context.clear()
        self._key, self._kept = job.key, shared[:same]
        job.num_shared_read = same
        if not job.num_done:
            job.num_cached = same
        return context

    def _read_shared(
        self, job: OptionJob, start: int, context: LlamaContext, room: int, decode: Decode
    ) -> None:
        tokens = np.asarray(job.questions[0].row[start : min(job.num_shared, start + room)], np.int32)
        self._batch.add(tokens, start, PREFIX, outputs="none")
        if decode(context, self._batch):
            job.num_shared_read = start + len(tokens)
            self._kept = np.concatenate((self._kept, tokens))

    def _read_questions(
        self,
        job: OptionJob,
        group: Sequence[TokenisedQuestion],
        context: LlamaContext,
        room: int,
        decode: Decode,
    ) -> None:
        if job.num_read == 0 and job.num_shared:
            for seq_id in range(len(group)):
                context.copy_all(PREFIX, seq_id)
        parts = unread([len(question.row) for question in group], job.num_shared, job.num_read, room)
        ends: list[tuple[int, int]] = []
        for seq_id, start, end in parts:
            row = group[seq_id].row
            is_end = end == len(row)
            tokens = np.asarray(row[start:end], np.int32)
            index = self._batch.add(tokens, start, seq_id, outputs="last" if is_end else "none")
            if is_end:
                ends.append((seq_id, index))
        if not decode(context, self._batch):
            return
        job.num_read += self._batch.size
        for seq_id, index in ends:
            group[seq_id].tree.add_logits((), context.logits(index))

    def _follow_paths(
        self,
        job: OptionJob,
        group: Sequence[TokenisedQuestion],
        context: LlamaContext,
        room: int,
        decode: Decode,
    ) -> None:
        """Compute paths of options, each in a branch of its question. Without any left, the group is answered."""
        taken: list[tuple[OptionTree, list[Path], int]] = []
        for number, question in enumerate(group):
            longest = question.tree.longest
            while len(taken) < PATHS and (not taken or self._batch.size + longest <= room):
                path = next(iter(question.tree.next_paths(1)), None)
                if path is None:
                    break
                missing = question.tree.missing(path)
                if not missing:
                    continue
                seq_id = BRANCHES + len(taken)
                context.copy_all(number, seq_id)
                tokens = np.asarray(path, np.int32)
                outputs = "last" if len(missing) == 1 else "all"
                last = self._batch.add(tokens, len(question.row), seq_id, outputs=outputs)
                taken.append((question.tree, missing, last - len(missing) + 1))
        if not taken:
            self._finish(job, group, context)
            return
        if not decode(context, self._batch):
            return
        for branch, (tree, missing, first) in enumerate(taken):
            for offset, path in enumerate(missing):
                tree.add_logits(path, context.logits(first + offset))
            context.remove(BRANCHES + branch)

    def _finish(self, job: OptionJob, group: Sequence[TokenisedQuestion], context: LlamaContext) -> None:
        for seq_id, question in enumerate(group):
            masses, is_exact = question.tree.result()
            job.answers.append(
                OptionWeights(
                    log_masses=tuple(masses), tokenisations=tuple(question.tree.counts), is_exact=is_exact
                )
            )
            context.remove(seq_id)
        job.num_done += len(group)
        job.num_read = 0


def _cells(job: OptionJob) -> int:
    lengths = [len(question.row) - job.num_shared for question in job.questions]
    longest_path = max(question.tree.longest for question in job.questions)
    return job.num_shared + group_cells(lengths) + PATHS * longest_path


def make_scorer(
    settings: EngineSettings, model: LlamaModel, facts: ModelFacts, threads: ThreadPool
) -> OptionScorer:
    """Takes no memory before its first use."""
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

    return OptionScorer(create, BATCH_TOKENS)
