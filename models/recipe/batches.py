"""The input of one optimizer step: sequences packed into rows of one length, and rows as tensors.

Rows have one shape, so that nothing is computed on padding, and each kernel is made once.
"""

# The training packages are apart from the product's environment, in which types are checked.
# pyright: reportMissingImports=false

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from models.recipe.corpus.conversation import Example
from models.recipe.plan import Plan
from models.recipe.tokenizer import Encoder

# So many sequences wait for a row that has room for them: enough to fill 97 % of the rows.
_WAITING = 16


@dataclass(frozen=True)
class WeightedIds:
    """One example as ids, with the loss weight of each id (that of predicting it)."""

    ids: list[int]
    weights: list[float]


# Sequences that stand one after the other and do not see each other.
Row = list[WeightedIds]


@dataclass(frozen=True)
class Packed:
    """Rows as tensors (rows, length). ``weights``: of predicting the ``targets``, the next ids.

    ``mask`` (rows, length, length) is added to the scores of attention: minus infinity where a token does not see.
    """

    ids: Tensor
    targets: Tensor
    weights: Tensor
    mask: Tensor

    @property
    def wanted(self) -> Tensor:
        """Where something is predicted."""
        return self.weights > 0


class Batches:
    """The rows of one optimizer step after another: ``step_rows`` of ``row_tokens`` each.

    A sequence that is longer than a row has one of its own.
    """

    def __init__(self, plan: Plan, encoder: Encoder, stream: Iterator[tuple[str, Example]]) -> None:
        self._plan, self._encoder, self._stream = plan, encoder, stream
        self._random = random.Random(plan.seed)
        self._waiting: list[WeightedIds] = []

    def __next__(self) -> list[Row]:
        rows: list[Row] = [[] for _ in range(self._plan.step_rows)]
        free = [self._plan.row_tokens] * len(rows)
        waiting, self._waiting = self._waiting, []
        for sequence in waiting:
            self._place(sequence, rows, free)
        while len(self._waiting) < _WAITING:
            self._place(self._encode(next(self._stream)[1]), rows, free)
        return rows

    def _place(self, sequence: WeightedIds, rows: list[Row], free: list[int]) -> None:
        """Put a sequence into the row that has the least room for it (best fit), or let it wait."""
        length = len(sequence.ids)
        fitting = [index for index, room in enumerate(free) if room >= length or not rows[index]]
        if not fitting:
            self._waiting.append(sequence)
            return
        best = min(fitting, key=lambda index: free[index])
        rows[best].append(sequence)
        free[best] -= length

    def _encode(self, example: Example) -> WeightedIds:
        ids: list[int] = []
        weights: list[float] = []
        for piece in example.pieces():
            encoded, starts = self._encoder.encode_with_starts(piece.text)
            ids += encoded
            weights += (
                [self._plan.decisive_weight if start < piece.decisive else 1.0 for start in starts]
                if piece.learned
                else self._prompt_weights(len(encoded))
            )
        return WeightedIds(ids, weights)

    def _prompt_weights(self, count: int) -> list[float]:
        """Only a share of the given text is predicted, with as much more weight: the same aim for less work."""
        share = self._plan.prompt_share
        return [
            self._plan.prompt_weight / share if self._random.random() < share else 0.0 for _ in range(count)
        ]


def tokens_of(rows: Sequence[Row]) -> int:
    """The number of tokens in rows."""
    return sum(len(sequence.ids) for row in rows for sequence in row)


def weight_of(rows: Sequence[Row]) -> float:
    """The weight of all that is predicted in rows: nothing predicts the first token of a sequence."""
    return sum(sum(sequence.weights[1:]) for row in rows for sequence in row)


def packed(rows: Sequence[Row], *, pad: int, length: int = 0) -> Packed:
    """Rows as tensors, padded to ``length`` or to the longest."""
    length = max(length, *(sum(len(sequence.ids) for sequence in row) for row in rows))
    ids = torch.full((len(rows), length), pad)
    weights = torch.zeros(len(rows), length)
    which = torch.full((len(rows), length), -1)  # padding sees itself: a row that sees nothing has no softmax
    for number, row in enumerate(rows):
        end = 0
        for index, sequence in enumerate(row):
            start, end = end, end + len(sequence.ids)
            ids[number, start:end] = torch.tensor(sequence.ids)
            weights[number, start : end - 1] = torch.tensor(sequence.weights[1:])
            which[number, start:end] = index
    seen = torch.ones(length, length, dtype=torch.bool).tril() & (which[:, None] == which[:, :, None])
    mask = torch.zeros(len(rows), length, length).masked_fill_(~seen, float("-inf"))
    return Packed(ids, ids.roll(-1, 1), weights, mask)
