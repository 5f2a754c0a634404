"""Teaches the text model to read pictures, without pictures: the rows are those that a perfect eye would give.

    python -m models.recipe.eye.reading --output build/jan-tiny-eye [--resume]

The rows of :mod:`models.recipe.eye.rows` are disturbed as by an eye that errs. About half of each step is the text
model's own corpus, in which it is held to the distribution of the model that it was (Hinton et al., 2015), so that it
forgets nothing.

Writes ``reading.pt`` (every minute or so) and ``reading.jsonl``.
"""

# The training packages are apart from the product's environment, in which types are checked.
# pyright: reportMissingImports=false

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from models.recipe.batches import Batches, packed, weight_of
from models.recipe.corpus.draw import Draw
from models.recipe.corpus.mixture import examples
from models.recipe.eye.attributes import attributes_of
from models.recipe.eye.batches import LikeLengths, Prompt, TextBatch, Writer, text_batch
from models.recipe.eye.plan import EyePlan
from models.recipe.eye.questions import ROWS, draw_exchange
from models.recipe.eye.rows import disturbed_rows, rows_of, vectors_of
from models.recipe.eye.scene import Scene, draw_scene
from models.recipe.eye.text_model import TextModel, read_plainly
from models.recipe.eye.train import add_arguments, plan_of, use_one_thread
from models.recipe.optimizer import Muon
from models.recipe.plan import Plan
from models.recipe.precision import PRODUCTS
from models.recipe.processes import ALONE, Processes, run_together
from models.recipe.tokenizer import Encoder
from models.recipe.train import keep_freed_memory
from models.recipe.vocabulary import END_OF_TEXT

_SAVE_SECONDS = 60
_LOG_EVERY = 10


class Reader:
    """The text model in training: the content of a checkpoint.

    Each of several processes has its own, draws its own share of a step, and all are equal after each step.
    """

    def __init__(self, plan: EyePlan, model: Path, processes: Processes = ALONE) -> None:
        self.plan, self._processes = plan, processes
        self._model = hashlib.sha256(model.read_bytes()).hexdigest()
        self.text = TextModel(model, precision=PRODUCTS)
        self._before = TextModel(model, precision=PRODUCTS)
        self._tokens = plan.shape(self.text.shape.n_embd).tokens
        self.vectors = vectors_of(self.text, seed=plan.seed)
        self.weights = self.text.learned()
        matrices = [weight for weight in self.weights.values() if weight.dim() == 2]
        norms = [weight for weight in self.weights.values() if weight.dim() == 1]
        self.optimizers: list[torch.optim.Optimizer] = [
            Muon(matrices, processes, lr=0.0, weight_decay=0.0),
            torch.optim.AdamW(norms, betas=(0.9, 0.95), weight_decay=0.0),
        ]
        self.step = 0
        self._pad = self.text.vocabulary.id_of(END_OF_TEXT)
        self._begin()

    def _begin(self) -> None:
        """A new part of the endless corpus: a resumed run draws others."""
        rank, count = self._processes.rank, self._processes.count
        seed = f"reading-{self.plan.seed}-{self.step}-{rank}"
        torch.manual_seed(self.plan.seed + self.step + rank)
        encoder = Encoder(self.text.vocabulary)
        self._draw = Draw(seed, held_out=False)
        self._writer = Writer(
            encoder, self._draw, image_tokens=self._tokens, questions=self.plan.reading_questions
        )
        # All processes have prompts of the same length in a step, so that none waits for another.
        order = random.Random(f"reading-{self.plan.seed}-{self.step}")
        half = max(1, self.plan.reading_scenes // 2 // count)
        self._asked = LikeLengths(self._draw, self._writer, half=half, order=order)
        pieces = self.text.vocabulary.word_pieces()
        stream = examples(seed, held_out=False, late=lambda: True, pieces=pieces)
        self._replayed_rows = self.plan.reading(self.step)[1]
        self._replay = Plan(
            seed=self.plan.seed + self.step + rank, step_rows=max(1, self._replayed_rows // count)
        )
        self._corpus = Batches(self._replay, encoder, stream)

    def train_step(self) -> dict[str, float]:
        """One optimizer step. Its figures: the answers' loss and share of right tokens, and the divergence."""
        rate, rows, weight = self.plan.reading(self.step)
        if rows != self._replayed_rows:
            self._begin()
        for optimizer in self.optimizers:
            optimizer.zero_grad()
            for group in optimizer.param_groups:
                group["lr"] = rate
        loss, right = self._answers()
        loss.backward()
        away = self._replayed()
        (weight * away).backward()
        self._processes.mean_([each.grad for each in self.weights.values() if each.grad is not None])
        torch.nn.utils.clip_grad_norm_(list(self.weights.values()), 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
        self.step += 1
        return {"loss": float(loss.detach()), "right": right, "away": float(away.detach()), "rate": rate}

    def _answers(self) -> tuple[Tensor, float]:
        taken = next(self._asked)
        attributes = torch.tensor([attributes_of(scene) for scene, _ in taken])
        rows = disturbed_rows(
            self.vectors, attributes, self._tokens, others=self.plan.other_share, noise=self.plan.noise
        )
        batch = text_batch([prompt for _, prompt in taken], pad=self._pad)
        logits, targets = self._logits(batch, rows), batch.targets[batch.wanted]
        right = (logits.detach().argmax(-1) == targets).float().mean()
        return F.cross_entropy(logits, targets), float(right)

    def _logits(self, batch: TextBatch, rows: Tensor) -> Tensor:
        """Of the learned tokens."""
        states = states_of(self.text, batch, rows)
        return self.text.logits(self.text.hidden(states, batch.positions, batch.mask, wanted=batch.wanted))

    def _replayed(self) -> Tensor:
        """The divergence from the model as it was, in nats a token."""
        taken = next(self._corpus)
        rows = packed(taken, pad=self._pad, length=self._replay.row_tokens)
        wanted = rows.wanted
        with torch.no_grad():
            before = read_plainly(self._before, rows.ids, rows.mask, wanted=wanted)
            aim = self._before.logits(before).log_softmax(-1)
        after = self.text.logits(read_plainly(self.text, rows.ids, rows.mask, wanted=wanted)).log_softmax(-1)
        each = F.kl_div(after, aim, reduction="none", log_target=True).sum(-1)
        return (each * rows.weights[wanted]).sum() / weight_of(taken)

    @torch.no_grad()
    def held_out(self, *, count: int, seed: str) -> dict[str, float]:
        """The share of whole answers that are right, by row of the table, on undisturbed rows of held-out scenes."""
        found: dict[str, float] = {}
        for name, _, skill, kinds in ROWS:
            draw = Draw(f"{seed}-{name}", held_out=True)
            writer = Writer(Encoder(self.text.vocabulary), draw, image_tokens=self._tokens, questions=1)
            scenes = [draw_scene(draw, draw.choice(kinds)) for _ in range(count)]
            prompts = [writer.asked(draw_exchange(draw, scene, skill)) for scene in scenes]
            found[name] = self._right(scenes, prompts) / count
        return found

    def _right(self, scenes: Sequence[Scene], prompts: Sequence[Prompt]) -> int:
        """The number of prompts of which every learned token is the first choice."""
        batch = text_batch(prompts, pad=self._pad)
        attributes = torch.tensor([attributes_of(scene) for scene in scenes])
        logits = self._logits(batch, rows_of(self.vectors, attributes, self._tokens))
        wrong = torch.zeros(len(prompts), dtype=torch.long)
        missed = logits.argmax(-1) != batch.targets[batch.wanted]
        wrong.index_add_(0, batch.wanted.nonzero()[:, 0], missed.long())
        return int((wrong == 0).sum())

    def save(self, path: Path) -> None:
        """Write the checkpoint in one piece: a stop in between leaves the older one."""
        partial = path.with_suffix(".partial")
        state = {
            "weights": {name: weight.detach() for name, weight in self.weights.items()},
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "step": self.step,
            "model": self._model,
        }
        torch.save(state, partial)
        os.replace(partial, path)

    def load(self, path: Path) -> None:
        """Raises ValueError if another text model was read: it would be held to this one from here on."""
        state: dict[str, Any] = torch.load(path, weights_only=True)
        if state["model"] != self._model:
            raise ValueError(f"{path} began with another text model")
        self.text.load(state["weights"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.step = state["step"]
        self._begin()


def states_of(text: TextModel, batch: TextBatch, rows: Tensor) -> Tensor:
    """The embeddings of prompts, with the pictures' rows in their places."""
    which = (batch.images.long().cumsum(1) - 1) % rows.shape[1]
    pictures = rows[torch.arange(len(rows))[:, None], which]
    return torch.where(batch.images[..., None], pictures, text.embedded(batch.ids))


@dataclass(frozen=True)
class Reading:
    """A run of reading: ``model`` is the text model to begin with, ``output`` the folder of the checkpoint."""

    plan: EyePlan
    model: Path
    output: Path
    resume: bool

    def train(self, processes: Processes = ALONE) -> None:
        """Run the steps that the checkpoint lacks. The first process alone writes files; blocks for about an
        hour of two processes at the plan's sizes.

        Seconds in the log are CPU seconds of all processes since this start.
        """
        keep_freed_memory()
        checkpoint = self.output / "reading.pt"
        reader = Reader(self.plan, self.model, processes)
        if self.resume and checkpoint.exists():
            reader.load(checkpoint)
        writes = processes.rank == 0
        saved = time.monotonic()
        running: dict[str, float] = {}
        mode = "a" if self.resume else "w"
        with (self.output / "reading.jsonl").open(mode, encoding="utf-8") if writes else nullcontext() as log:
            steps = self.plan.reading_steps + self.plan.settle_steps
            while reader.step < steps:
                figures = reader.train_step()
                running = {key: 0.9 * running.get(key, value) + 0.1 * value for key, value in figures.items()}
                if reader.step % _LOG_EVERY == 0 or reader.step == steps:
                    entry = {"step": reader.step, "cpu_seconds": round(processes.total(time.process_time()))}
                    means = {key: round(value, 4) for key, value in running.items()}
                    if log is not None:
                        print(json.dumps(entry | means), file=log, flush=True)
                if writes and time.monotonic() - saved > _SAVE_SECONDS:
                    reader.save(checkpoint)
                    saved = time.monotonic()
        if writes:
            reader.save(checkpoint)


def train(plan: EyePlan, model: Path, output: Path, *, resume: bool, processes: int = 1) -> None:
    """Run the steps that a checkpoint in ``output`` lacks, in ``processes`` of one thread each."""
    output.mkdir(parents=True, exist_ok=True)
    run_together(processes, Reading(plan, model, output, resume).train)


def main() -> None:
    parser = argparse.ArgumentParser(description="Teach the text model to read pictures.")
    add_arguments(parser)
    parser.add_argument("--count", type=int, default=100, help="held-out questions a row, at the end")
    arguments = parser.parse_args()
    use_one_thread()
    plan = plan_of(arguments)
    train(plan, arguments.model, arguments.output, resume=arguments.resume, processes=arguments.processes)
    reader = Reader(plan, arguments.model)
    reader.load(arguments.output / "reading.pt")
    for name, share in reader.held_out(count=arguments.count, seed="reading").items():
        print(f"{name}: {share:.1%}", flush=True)


if __name__ == "__main__":
    main()
