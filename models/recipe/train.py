"""Trains ``jan-tiny``: seeded, resumable, with a schedule that counts tokens and not time.

    python -m models.recipe.train --output build/jan-tiny [--resume]

Writes ``vocabulary.json``, ``checkpoint.pt`` (every ``--save-every`` steps and at the end) and ``log.jsonl``.
"""

# The training packages are apart from the product's environment, in which types are checked.
# pyright: reportMissingImports=false

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from models.recipe.batches import Batches, Packed, packed, tokens_of, weight_of
from models.recipe.corpus.mixture import examples
from models.recipe.model import TinyLlama
from models.recipe.optimizer import Muon
from models.recipe.plan import Plan, reader_of
from models.recipe.precision import PRODUCTS
from models.recipe.processes import ALONE, Processes, run_together
from models.recipe.tokenizer import Encoder, learn_vocabulary
from models.recipe.vocabulary import END_OF_TEXT, Vocabulary


class Trainer:
    """Model, average of the model, optimizers and counters: the content of a checkpoint.

    Each of several processes has its own, and all are equal after each step.
    """

    def __init__(self, plan: Plan, vocabulary: Vocabulary, processes: Processes = ALONE) -> None:
        self.plan, self._processes = plan, processes
        self.model = TinyLlama(plan.shape(), seed=plan.seed)
        self.average = {name: tensor.detach().clone() for name, tensor in self.model.named_parameters()}
        matrices = [
            p for name, p in self.model.named_parameters() if p.dim() == 2 and "token_embd" not in name
        ]
        others = [p for name, p in self.model.named_parameters() if p.dim() == 1 or "token_embd" in name]
        self.optimizers: list[torch.optim.Optimizer] = [
            Muon(matrices, processes, lr=plan.peak_rate, weight_decay=plan.weight_decay),
            torch.optim.AdamW(others, lr=plan.peak_rate, betas=(0.9, 0.95), weight_decay=0.0),
        ]
        self.step = 0
        self.seen = 0
        self.encoder = Encoder(vocabulary)
        self.pad = vocabulary.id_of(END_OF_TEXT)
        self._pieces = vocabulary.word_pieces()
        self.batches = self._fresh_batches()

    def _fresh_batches(self) -> Batches:
        # A resumed run draws a new part of the endless corpus: seeded by where it goes on.
        stream = examples(
            f"train-{self.plan.seed}-{self.step}", held_out=False, late=self._is_late, pieces=self._pieces
        )
        return Batches(self.plan, self.encoder, stream)

    def _is_late(self) -> bool:
        """Whether the second stage of the corpus has begun."""
        return self.plan.is_late(self.seen)

    def train_step(self) -> float:
        """One optimizer step; returns the weighted loss in nats."""
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self.plan.rate(self.seen, self.step)
            optimizer.zero_grad(set_to_none=True)
        rows = next(self.batches)
        ours = packed(
            rows[self._processes.rank :: self._processes.count], pad=self.pad, length=self.plan.row_tokens
        )
        loss = self._loss(ours) / weight_of(rows)
        loss.backward()
        loss = loss.detach()
        self._processes.sum_([loss, *self._gradients()])
        self.seen += tokens_of(rows)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
        self.step += 1
        self._update_average()
        return float(loss.item())

    def _loss(self, rows: Packed) -> Tensor:
        """The sum of the weighted losses of rows, in nats."""
        wanted = rows.wanted
        hidden = self.model.hidden(rows.ids, mask=rows.mask, wanted=wanted, precision=PRODUCTS)
        logits = F.linear(hidden.to(PRODUCTS), self.model.weight("token_embd.weight").to(PRODUCTS))
        losses = F.cross_entropy(logits.float(), rows.targets[wanted], reduction="none")
        return (losses * rows.weights[wanted]).sum()

    def _gradients(self) -> list[Tensor]:
        """Of all parameters; zeros for those that this process had no rows for."""
        parameters = list(self.model.parameters())
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        return [parameter.grad for parameter in parameters if parameter.grad is not None]

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


@dataclass(frozen=True)
class Run:
    """A run of training in a folder, from the start or from its checkpoint, and how often it writes."""

    plan: Plan
    output: Path
    resume: bool
    save_every: int
    log_every: int

    @property
    def checkpoint(self) -> Path:
        return self.output / "checkpoint.pt"

    @property
    def vocabulary(self) -> Path:
        return self.output / "vocabulary.json"

    def prepare(self) -> None:
        """Make the folder and, unless a run goes on, the vocabulary. Once, before any process trains."""
        self.output.mkdir(parents=True, exist_ok=True)
        if not (self.resume and self.vocabulary.exists()):
            learn_vocabulary(size=self.plan.vocabulary_size, seed=self.plan.seed).save(self.vocabulary)

    def train(self, processes: Processes = ALONE) -> None:
        """Train until the plan's tokens are seen. The first process alone writes files.

        Seconds in the log are CPU seconds of all processes since this start.
        """
        keep_freed_memory()
        trainer = Trainer(self.plan, Vocabulary.load(self.vocabulary), processes)
        if self.resume and self.checkpoint.exists():
            trainer.load(self.checkpoint)
        writes = processes.rank == 0
        if writes:
            parameters = sum(parameter.numel() for parameter in trainer.model.parameters())
            tokens = self.plan.total_tokens
            print(f"{parameters / 1e6:.2f} M parameters, {tokens / 1e6:.1f} M tokens to see", flush=True)
        opened = (
            (self.output / "log.jsonl").open("a" if self.resume else "w", encoding="utf-8")
            if writes
            else None
        )
        running = 0.0
        first = trainer.seen
        with opened or contextlib.nullcontext() as log:
            while trainer.seen < self.plan.total_tokens:
                loss = trainer.train_step()
                running = loss if running == 0.0 else 0.95 * running + 0.05 * loss
                if trainer.step % self.log_every == 0:
                    seconds = processes.total(time.process_time())
                    if log is not None:
                        print(json.dumps(_entry(trainer, running, first, seconds)), file=log, flush=True)
                if writes and trainer.step % self.save_every == 0:
                    trainer.save(self.checkpoint)
        if writes:
            trainer.save(self.checkpoint)


def _entry(trainer: Trainer, loss: float, first: int, seconds: float) -> dict[str, float]:
    return {
        "step": trainer.step,
        "tokens": trainer.seen,
        "loss": round(loss, 4),
        "rate": round(trainer.plan.rate(trainer.seen, trainer.step), 6),
        "tokens_per_cpu_second": round((trainer.seen - first) / seconds),
        "cpu_seconds": round(seconds),
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of a run: where it goes, and every field of :class:`Plan`."""
    parser.add_argument("--output", type=Path, default=Path("build/jan-tiny"))
    parser.add_argument(
        "--resume", action="store_true", help="go on from the checkpoint in the output folder"
    )
    parser.add_argument("--save-every", type=int, default=100, metavar="STEPS")
    parser.add_argument("--log-every", type=int, default=20, metavar="STEPS")
    parser.add_argument(
        "--processes",
        type=int,
        default=min(2, os.cpu_count() or 1),
        help="of one thread each (default %(default)s)",
    )
    for field in fields(Plan):
        parser.add_argument(
            f"--{field.name.replace('_', '-')}", type=reader_of(field.default), default=field.default
        )


def train(arguments: argparse.Namespace) -> None:
    """Train as the parsed options of :func:`add_arguments` say."""
    plan = Plan(**{field.name: getattr(arguments, field.name) for field in fields(Plan)})
    run = Run(
        plan,
        arguments.output,
        resume=arguments.resume,
        save_every=arguments.save_every,
        log_every=arguments.log_every,
    )
    run.prepare()
    run_together(arguments.processes, run.train)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the built-in model.")
    add_arguments(parser)
    train(parser.parse_args())


if __name__ == "__main__":
    main()
