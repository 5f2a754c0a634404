"""Trains ``jan-tiny``: seeded, resumable, with a schedule that counts tokens and not time.

    python -m models.recipe.train --output build/jan-tiny [--resume]

Writes ``vocabulary.json``, ``checkpoint.pt`` (every ``--save-every`` steps and at the end) and ``log.jsonl``.
"""

# The training packages are apart from the product's environment, in which types are checked.
# pyright: reportMissingImports=false

from __future__ import annotations

import argparse
import ctypes
import json
import math
import os
import random
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from models.recipe.corpus.conversation import Example
from models.recipe.corpus.mixture import examples
from models.recipe.gguf_file import LlamaShape
from models.recipe.model import TinyLlama
from models.recipe.optimizer import Muon
from models.recipe.tokenizer import Encoder, learn_vocabulary
from models.recipe.vocabulary import END_OF_TEXT, Vocabulary


@dataclass(frozen=True)
class Plan:
    """Everything that a run depends on. Sizes in tokens unless said otherwise."""

    seed: int = 1
    vocabulary_size: int = 1280
    n_embd: int = 192
    n_layer: int = 7
    n_head: int = 6
    n_ff: int = 512
    n_ctx: int = 2048
    total_tokens: int = 48_500_000
    late_share: float = 0.5
    step_tokens: int = 4_096
    peak_rate: float = 4e-3
    final_rate_share: float = 0.02
    warmup_steps: int = 60
    cooldown_share: float = 0.6
    weight_decay: float = 0.05
    prompt_weight: float = 0.1
    prompt_share: float = 0.25
    decisive_weight: float = 6.0
    group_cost: int = 100
    averaging: float = 0.995

    def shape(self) -> LlamaShape:
        return LlamaShape(self.vocabulary_size, self.n_embd, self.n_layer, self.n_head, self.n_ff, self.n_ctx)

    def rate(self, seen: int, step: int) -> float:
        """Warm up, hold, then fall to ``final_rate_share`` along a cosine over the last ``cooldown_share``."""
        start = 1 - self.cooldown_share
        done = min(1.0, max(0.0, (seen / self.total_tokens - start) / self.cooldown_share))
        fall = 0.5 * (1 + math.cos(math.pi * done))
        return (
            self.peak_rate
            * min(1.0, (step + 1) / self.warmup_steps)
            * (fall * (1 - self.final_rate_share) + self.final_rate_share)
        )


@dataclass(frozen=True)
class Sequence:
    """One example as ids, with the loss weight of each id (that of predicting it)."""

    ids: list[int]
    weights: list[float]


class Batches:
    """Groups of sequences of like length, padded at the end; one call of ``next`` is one optimizer step."""

    def __init__(self, plan: Plan, encoder: Encoder, pad: int, stream: Iterator[tuple[str, Example]]) -> None:
        self._plan, self._encoder, self._pad, self._stream = plan, encoder, pad, stream
        self._random = random.Random(plan.seed)

    def __next__(self) -> list[tuple[Tensor, Tensor]]:
        sequences: list[Sequence] = []
        count = 0
        while count < self._plan.step_tokens:
            _, example = next(self._stream)
            sequence = self._encode(example)
            count += len(sequence.ids)
            sequences.append(sequence)
        sequences.sort(key=lambda sequence: len(sequence.ids))
        runs = grouped([len(sequence.ids) for sequence in sequences], group_cost=self._plan.group_cost)
        return [self._padded([sequences[index] for index in run]) for run in runs]

    def _encode(self, example: Example) -> Sequence:
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
        return Sequence(ids, weights)

    def _prompt_weights(self, count: int) -> list[float]:
        """Only a share of the given text is predicted, with as much more weight: the same aim for less work."""
        share = self._plan.prompt_share
        return [
            self._plan.prompt_weight / share if self._random.random() < share else 0.0 for _ in range(count)
        ]

    def _padded(self, group: list[Sequence]) -> tuple[Tensor, Tensor]:
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


class Trainer:
    """Model, average of the model, optimizers and counters: what a checkpoint holds."""

    def __init__(self, plan: Plan, vocabulary: Vocabulary) -> None:
        self.plan = plan
        self.model = TinyLlama(plan.shape(), seed=plan.seed)
        self.average = {name: tensor.detach().clone() for name, tensor in self.model.named_parameters()}
        matrices = [
            p for name, p in self.model.named_parameters() if p.dim() == 2 and "token_embd" not in name
        ]
        others = [p for name, p in self.model.named_parameters() if p.dim() == 1 or "token_embd" in name]
        self.optimizers: list[torch.optim.Optimizer] = [
            Muon(matrices, lr=plan.peak_rate, weight_decay=plan.weight_decay),
            torch.optim.AdamW(others, lr=plan.peak_rate, betas=(0.9, 0.95), weight_decay=0.0),
        ]
        self.step = 0
        self.seen = 0
        self.encoder = Encoder(vocabulary)
        self.pad = vocabulary.id_of(END_OF_TEXT)
        self.batches = self._fresh_batches()

    def _fresh_batches(self) -> Batches:
        # A resumed run draws a new part of the endless corpus: seeded by where it goes on.
        stream = examples(f"train-{self.plan.seed}-{self.step}", held_out=False, late=self._is_late)
        return Batches(self.plan, self.encoder, self.pad, stream)

    def _is_late(self) -> bool:
        """Whether the second stage of the corpus has begun."""
        return self.seen >= (1 - self.plan.late_share) * self.plan.total_tokens

    def train_step(self) -> float:
        """One optimizer step; returns the weighted loss in nats."""
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self.plan.rate(self.seen, self.step)
            optimizer.zero_grad(set_to_none=True)
        groups = next(self.batches)
        total = float(sum(weights[:, 1:].sum() for _, weights in groups))
        loss_sum = 0.0
        for ids, weights in groups:
            hidden = self.model.hidden(ids[:, :-1], precision=torch.bfloat16)
            wanted = weights[:, 1:] > 0
            embedding = self.model.weight("token_embd.weight").bfloat16()
            logits = F.linear(hidden[wanted].bfloat16(), embedding)
            losses = F.cross_entropy(logits.float(), ids[:, 1:][wanted], reduction="none")
            loss = (losses * weights[:, 1:][wanted]).sum() / total
            loss.backward()
            loss_sum += loss.item()
            self.seen += int((ids != self.pad).sum())
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
        self.step += 1
        self._update_average()
        return loss_sum

    @torch.no_grad()
    def _update_average(self) -> None:
        keep = min(self.plan.averaging, (self.step + 1) / (self.step + 10))
        for name, tensor in self.model.named_parameters():
            self.average[name].lerp_(tensor, 1 - keep)

    def save(self, path: Path) -> None:
        """Write the checkpoint in one piece: a stop in between leaves the older one."""
        partial = path.with_suffix(".partial")
        state = {
            "plan": asdict(self.plan),
            "model": self.model.state_dict(),
            "average": self.average,
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "step": self.step,
            "seen": self.seen,
        }
        torch.save(state, partial)
        os.replace(partial, path)

    def load(self, path: Path) -> None:
        state: dict[str, Any] = torch.load(path, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.average = state["average"]
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.step, self.seen = state["step"], state["seen"]
        self.batches = self._fresh_batches()


def keep_freed_memory() -> None:
    """Tell glibc to reuse freed memory: giving it back at every step costs more in page faults than the arithmetic.

    Does nothing with another C library.
    """
    trim_threshold, top_pad, mmap_max = -1, -2, -4  # <malloc.h>: M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return
    for option, amount in ((mmap_max, 0), (trim_threshold, 2**31 - 1), (top_pad, 2**26)):
        mallopt(option, amount)


def train(plan: Plan, output: Path, *, resume: bool, save_every: int, log_every: int) -> None:
    """Run until ``plan.total_tokens`` are seen. Seconds in the log are CPU seconds of this process."""
    output.mkdir(parents=True, exist_ok=True)
    vocabulary_path, checkpoint = output / "vocabulary.json", output / "checkpoint.pt"
    if not (resume and vocabulary_path.exists()):
        learn_vocabulary(size=plan.vocabulary_size, seed=plan.seed).save(vocabulary_path)
    trainer = Trainer(plan, Vocabulary.load(vocabulary_path))
    if resume and checkpoint.exists():
        trainer.load(checkpoint)
    parameters = sum(parameter.numel() for parameter in trainer.model.parameters())
    print(f"{parameters / 1e6:.2f} M parameters, {plan.total_tokens / 1e6:.1f} M tokens to see", flush=True)
    running = 0.0
    started, first = time.process_time(), trainer.seen
    with (output / "log.jsonl").open("a" if resume else "w", encoding="utf-8") as log:
        while trainer.seen < plan.total_tokens:
            loss = trainer.train_step()
            running = loss if running == 0.0 else 0.95 * running + 0.05 * loss
            if trainer.step % log_every == 0:
                seconds = time.process_time() - started
                entry = {
                    "step": trainer.step,
                    "tokens": trainer.seen,
                    "loss": round(running, 4),
                    "rate": round(plan.rate(trainer.seen, trainer.step), 6),
                    "tokens_per_cpu_second": round((trainer.seen - first) / seconds),
                    "cpu_seconds": round(seconds),
                }
                print(json.dumps(entry), file=log, flush=True)
            if trainer.step % save_every == 0:
                trainer.save(checkpoint)
    trainer.save(checkpoint)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of a run: where it goes, and every field of :class:`Plan`."""
    parser.add_argument("--output", type=Path, default=Path("build/jan-tiny"))
    parser.add_argument(
        "--resume", action="store_true", help="go on from the checkpoint in the output folder"
    )
    parser.add_argument("--save-every", type=int, default=100, metavar="STEPS")
    parser.add_argument("--log-every", type=int, default=20, metavar="STEPS")
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    for field in fields(Plan):
        parser.add_argument(
            f"--{field.name.replace('_', '-')}", type=type(field.default), default=field.default
        )


def run(arguments: argparse.Namespace) -> None:
    """Train as the parsed options of :func:`add_arguments` say."""
    keep_freed_memory()
    torch.set_num_threads(arguments.threads)
    train(
        Plan(**{field.name: getattr(arguments, field.name) for field in fields(Plan)}),
        arguments.output,
        resume=arguments.resume,
        save_every=arguments.save_every,
        log_every=arguments.log_every,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the built-in model.")
    add_arguments(parser)
    run(parser.parse_args())


if __name__ == "__main__":
    main()
