"""Weighs the options of questions that branch from one prompt, batch by batch, in a context of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np

from jan_serve.engine.embedding.input_pooling import (
    MAX_SEQUENCES,
    Decode,
    GrowingContext,
    group_cells,
    group_size,
    unread,
)
from jan_serve.engine.llama.context import Batch, LlamaContext
from jan_serve.engine.scoring.option_tree import OptionTree, Path
from jan_serve.engine.tokens import Tokens, common_prefix
from jan_serve.ipc.scoring import AdapterUse, OptionsWeighed, OptionWeights

BRANCHES: Final = MAX_SEQUENCES
"""Questions in the cache at once."""
PATHS: Final = 16
"""Paths of options in a batch."""
PREFIX: Final = BRANCHES + PATHS
"""The sequence of the shared prompt. Those of the questions begin at 0, those of the paths at BRANCHES."""
N_SEQUENCES: Final = PREFIX + 1


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


class _Kept(NamedTuple):
    """The shared prompt that is in the cache, after the last job too."""

    key: str
    tokens: Tokens


class OptionScorer:
    """Computes jobs one after the other. The shared prompt of the last one stays in the cache for the next."""

    def __init__(self, create: Callable[[int], LlamaContext], batch_tokens: int) -> None:
        """create: makes a context of this many cells; raises InsufficientMemory.

        batch_tokens: max tokens of a batch; at least those of a path of options.
        """
        self._batch = Batch(max(batch_tokens, BRANCHES))
        self._contexts = GrowingContext(create, self._batch.capacity)
        self._kept = _Kept("", np.zeros(0, np.int32))

    def advance(self, job: OptionJob, room: int, decode: Decode) -> None:
        """Compute the next batch, of about `room` tokens: of the shared prompt, of questions, or of options.

        Blocks. Raises InsufficientMemory and the errors of `decode`.
        """
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
            self._kept = _Kept("", np.zeros(0, np.int32))
        for seq_id in range(PREFIX):
            context.remove(seq_id)
        shared = np.asarray(job.questions[0].row[: job.num_shared], np.int32)
        same = common_prefix(self._kept.tokens, shared) if self._kept.key == job.key else 0
        # Also what an aborted batch has left after them.
        if not same or not context.truncate(PREFIX, same):
            same = 0
            context.clear()
        self._kept = _Kept(job.key, shared[:same])
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
            self._kept = _Kept(job.key, np.concatenate((self._kept.tokens, tokens)))

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
