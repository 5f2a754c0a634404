"""Examples as padded tensors of ids: what one optimizer step reads, and the part of it that a process takes."""

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

# Ids and loss weights, both (sequences, longest length).
Group = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class WeightedIds:
    """One example as ids, with the loss weight of each id (that of predicting it)."""

    ids: list[int]
    weights: list[float]


class Batches:
    """Groups of sequences of like length, padded at the end; one call of ``next`` is one optimizer step."""

    def __init__(self, plan: Plan, encoder: Encoder, pad: int, stream: Iterator[tuple[str, Example]]) -> None:
        self._plan, self._encoder, self._pad, self._stream = plan, encoder, pad, stream
        self._random = random.Random(plan.seed)

    def __next__(self) -> list[Group]:
        sequences: list[WeightedIds] = []
        count = 0
        while count < self._plan.step_tokens:
            _, example = next(self._stream)
            sequence = self._encode(example)
            count += len(sequence.ids)
            sequences.append(sequence)
        sequences.sort(key=lambda sequence: len(sequence.ids))
        runs = grouped([len(sequence.ids) for sequence in sequences], group_cost=self._plan.group_cost)
        return [self._padded([sequences[index] for index in run]) for run in runs]

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

    def _padded(self, group: list[WeightedIds]) -> Group:
        length = len(group[-1].ids)
        ids = torch.full((len(group), length), self._pad)
        weights = torch.zeros(len(group), length)
        for row, sequence in enumerate(group):
            ids[row, : len(sequence.ids)] = torch.tensor(sequence.ids)
            weights[row, : len(sequence.ids)] = torch.tensor(sequence.weights)
        return ids, weights


def grouped(lengths: list[int], *, group_cost: int) -> list[range]:
    """Cut ascending lengths into runs that are padded to their longest, at the least total of padded tokens.

    Each run costs ``group_cost`` tokens more: the fixed work of one pass through the model.
    """
    count = len(lengths)
    best = [0] + [0] * count  # least cost of the first n
    starts = [0] * (count + 1)
    for end in range(1, count + 1):
        costs = [best[start] + (end - start) * lengths[end - 1] + group_cost for start in range(end)]
        best[end] = min(costs)
        starts[end] = costs.index(best[end])
    runs: list[range] = []
    end = count
    while end:
        runs.append(range(starts[end], end))
        end = starts[end]
    return runs[::-1]


def share(groups: Sequence[Group], *, part: int, parts: int) -> list[Group]:
    """Rows of ``groups`` for one of ``parts`` processes: the parts are disjoint, hold every row, and are of like size.

    The cut goes through a group where it has to, so that the sizes differ by a row at most.
    """
    total = sum(ids.numel() for ids, _ in groups)
    low, high = total * part / parts, total * (part + 1) / parts
    taken: list[Group] = []
    before = 0
    for ids, weights in groups:
        rows, length = ids.shape
        first, last = (min(rows, max(0, round((edge - before) / length))) for edge in (low, high))
        if first < last:
            taken.append((ids[first:last], weights[first:last]))
        before += rows * length
    return taken
