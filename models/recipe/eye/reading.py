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
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from models.recipe.batches import Batches, padded
from models.recipe.corpus.draw import Draw
from models.recipe.corpus.mixture import examples
from models.recipe.eye.attributes import attributes_of
from models.recipe.eye.batches import Prompt, TextBatch, Writer, text_batch
from models.recipe.eye.plan import EyePlan
from models.recipe.eye.questions import ROWS, draw_exchange
from models.recipe.eye.rows import disturbed_rows, rows_of, vectors_of
from models.recipe.eye.scene import Scene, draw_scene
from models.recipe.eye.text_model import TextModel, read_plainly
from models.recipe.eye.train import add_arguments, plan_of, use_one_thread
from models.recipe.optimizer import Muon
from models.recipe.plan import Plan
from models.recipe.processes import ALONE
from models.recipe.tokenizer import Encoder
from models.recipe.train import keep_freed_memory
from models.recipe.vocabulary import END_OF_TEXT

_SAVE_SECONDS = 60
_LOG_EVERY = 10


class Reader:
    """The text model in training: the content of a checkpoint."""

    def __init__(self, plan: EyePlan, model: Path) -> None:
        self.plan = plan
        self._model = hashlib.sha256(model.read_bytes()).hexdigest()
        self.text = TextModel(model, precision=torch.bfloat16)
        self._before = TextModel(model, precision=torch.bfloat16)
        self._tokens = plan.shape(self.text.shape.n_embd).tokens
        self.vectors = vectors_of(self.text, seed=plan.seed)
        self.weights = self.text.learned()
        matrices = [weight for weight in self.weights.values() if weight.dim() == 2]
        norms = [weight for weight in self.weights.values() if weight.dim() == 1]
        self.optimizers: list[torch.optim.Optimizer] = [
            Muon(matrices, ALONE, lr=0.0, weight_decay=0.0),
            torch.optim.AdamW(norms, betas=(0.9, 0.95), weight_decay=0.0),
        ]
        self.step = 0
        self._pad = self.text.vocabulary.id_of(END_OF_TEXT)
        self._begin()

    def _begin(self) -> None:
        """A new part of the endless corpus: a resumed run draws others."""
        seed = f"reading-{self.plan.seed}-{self.step}"
        torch.manual_seed(self.plan.seed + self.step)
        encoder = Encoder(self.text.vocabulary)
        self._draw = Draw(seed, held_out=False)
        self._writer = Writer(
            encoder, self._draw, image_tokens=self._tokens, questions=self.plan.reading_questions
        )
        pieces = self.text.vocabulary.word_pieces()
        stream = examples(seed, held_out=False, late=lambda: True, pieces=pieces)
        self._replayed_tokens = self.plan.reading(self.step)[1]
        replayed = Plan(seed=self.plan.seed + self.step, step_tokens=self._replayed_tokens)
        self._corpus = Batches(replayed, encoder, stream)

    def train_step(self) -> dict[str, float]:
        """One optimizer step. Its figures: the answers' loss and share of right tokens, and the divergence."""
        rate, tokens, weight = self.plan.reading(self.step)
        if tokens != self._replayed_tokens:
            self._begin()
        for optimizer in self.optimizers:
            optimizer.zero_grad()
            for group in optimizer.param_groups:
                group["lr"] = rate
        loss, right = self._answers()
        loss.backward()
        away = self._replayed(weight)
        torch.nn.utils.clip_grad_norm_(list(self.weights.values()), 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
        self.step += 1
        return {"loss": float(loss.detach()), "right": right, "away": away, "rate": rate}

    def _answers(self) -> tuple[Tensor, float]:
        draw, half = self._draw, self.plan.reading_scenes // 2
        # Two shapes are what takes longest to learn.
        scenes = [draw_scene(draw, "two" if number < half else None) for number in range(2 * half)]
        attributes = torch.tensor([attributes_of(scene) for scene in scenes])
        rows = disturbed_rows(
            self.vectors, attributes, self._tokens, others=self.plan.other_share, noise=self.plan.noise
        )
        batch = text_batch([self._writer.write(scene) for scene in scenes], pad=self._pad)
        logits, targets = self._logits(batch, rows), batch.targets[batch.wanted]
        right = (logits.detach().argmax(-1) == targets).float().mean()
        return F.cross_entropy(logits, targets), float(right)

    def _logits(self, batch: TextBatch, rows: Tensor) -> Tensor:
        """Of the learned tokens."""
        hidden = self.text.hidden(states_of(self.text, batch, rows), batch.positions, batch.mask)
        return self.text.logits(hidden[batch.wanted])

    def _replayed(self, weight: float) -> float:
        """Adds the gradients of the divergence from the model as it was, and returns it (nats a token)."""
        sequences = next(self._corpus)
        total = sum(sum(sequence.weights[1:]) for sequence in sequences)
        away = 0.0
        for ids, weights in padded(sequences, pad=self._pad, group_cost=100):
            states = self.text.embedded(ids[:, :-1])
            wanted = weights[:, 1:] > 0
            with torch.no_grad():
                aim = self._before.logits(read_plainly(self._before, states)[wanted]).log_softmax(-1)
            said = self.text.logits(read_plainly(self.text, states)[wanted]).log_softmax(-1)
            each = F.kl_div(said, aim, reduction="none", log_target=True).sum(-1)
            part = (each * weights[:, 1:][wanted]).sum() / total
            (weight * part).backward()
            away += float(part.detach())
        return away

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


def train(plan: EyePlan, model: Path, output: Path, *, resume: bool) -> None:
    """Run the steps that a checkpoint in ``output`` lacks. Blocks for an hour and a quarter at the plan's sizes."""
    output.mkdir(parents=True, exist_ok=True)
    keep_freed_memory()
    checkpoint = output / "reading.pt"
    reader = Reader(plan, model)
    if resume and checkpoint.exists():
        reader.load(checkpoint)
    saved = time.monotonic()
    running: dict[str, float] = {}
    with (output / "reading.jsonl").open("a" if resume else "w", encoding="utf-8") as log:
        steps = plan.reading_steps + plan.settle_steps
        while reader.step < steps:
            figures = reader.train_step()
            running = {key: 0.9 * running.get(key, value) + 0.1 * value for key, value in figures.items()}
            if reader.step % _LOG_EVERY == 0 or reader.step == steps:
                entry = {"step": reader.step, "cpu_seconds": round(time.process_time())}
                told = {key: round(value, 4) for key, value in running.items()}
                print(json.dumps(entry | told), file=log, flush=True)
            if time.monotonic() - saved > _SAVE_SECONDS:
                reader.save(checkpoint)
                saved = time.monotonic()
    reader.save(checkpoint)


def main() -> None:
    parser = argparse.ArgumentParser(description="Teach the text model to read pictures.")
    add_arguments(parser)
    parser.add_argument("--count", type=int, default=100, help="held-out questions a row, at the end")
    arguments = parser.parse_args()
    use_one_thread()
    plan = plan_of(arguments)
    train(plan, arguments.model, arguments.output, resume=arguments.resume)
    reader = Reader(plan, arguments.model)
    reader.load(arguments.output / "reading.pt")
    for name, share in reader.held_out(count=arguments.count, seed="reading").items():
        print(f"{name}: {share:.1%}", flush=True)


if __name__ == "__main__":
    main()
