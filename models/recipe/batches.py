"""The input of one optimizer step: its sequences, the share of one process, and that share as tensors."""

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

# The length at which attention takes as long as the matrix products, measured at the shape of the plan.
_ATTENTION_LENGTH = 300


@dataclass(frozen=True)
class WeightedIds:
    """One example as ids, with the loss weight of each id (that of predicting it)."""

    ids: list[int]
    weights: list[float]


class Batches:
    """The sequences of one optimizer step after another."""

    def __init__(self, plan: Plan, encoder: Encoder, stream: Iterator[tuple[str, Example]]) -> None:
        self._plan, self._encoder, self._stream = plan, encoder, stream
        self._random = random.Random(plan.seed)

    def __next__(self) -> list[WeightedIds]:
        sequences: list[WeightedIds] = []
        count = 0
        while count < self._plan.step_tokens:
            _, example = next(self._stream)
            sequence = self._encode(example)
            count += len(sequence.ids)
            sequences.append(sequence)
        return sequences

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


def share(sequences: Sequence[WeightedIds], *, part: int, parts: int) -> list[WeightedIds]:
    """The sequences for one of ``parts`` processes: the parts are disjoint, hold every sequence, and cost about alike.

    The longest first, each to the part that has the least to do (LPT; Graham 1969).
    """
    shares: list[list[WeightedIds]] = [[] for _ in range(parts)]
    costs = [0.0] * parts
    for sequence in sorted(sequences, key=lambda sequence: -len(sequence.ids)):
        least = costs.index(min(costs))
        shares[least].append(sequence)
        costs[least] += len(sequence.ids) * (1 + len(sequence.ids) / _ATTENTION_LENGTH)
    return shares[part]


def padded(sequences: Sequence[WeightedIds], *, pad: int, group_cost: int) -> list[Group]:
    """The sequences in groups of like length, padded at the end."""
    ordered = sorted(sequences, key=lambda sequence: len(sequence.ids))
    runs = grouped([len(sequence.ids) for sequence in ordered], group_cost=group_cost)
    return [_group([ordered[index] for index in run], pad) for run in runs]


def _group(sequences: Sequence[WeightedIds], pad: int) -> Group:
    length = len(sequences[-1].ids)
    ids = torch.full((len(sequences), length), pad)
    weights = torch.zeros(len(sequences), length)
    for row, sequence in enumerate(sequences):
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
