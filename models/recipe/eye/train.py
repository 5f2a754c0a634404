"""Trains the eye of the built-in model, without the text model: the rows to give are known beforehand.

    python -m models.recipe.eye.train --output build/jan-tiny-eye [--resume]

1. ``sight``: the encoder learns from pictures to tell the attributes, each from all cells and from its own.
2. ``project``: the projector learns to give the rows that :mod:`models.recipe.eye.reading` teaches the text model to
   read. The encoder stays: at the projector's first errors it would forget what it sees.
3. ``match``: both learn to give them.

Writes ``eye.pt`` (every minute or so) and ``eye.jsonl``.
"""

# The training packages are apart from the product's environment, in which types are checked.
# pyright: reportMissingImports=false

from __future__ import annotations

import argparse
import json
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.recipe.corpus.draw import Draw
from models.recipe.eye.attributes import COLOUR_INDEXES, SIZES, attributes_of
from models.recipe.eye.convnet import Eye
from models.recipe.eye.plan import EyePlan
from models.recipe.eye.raster import draw_size, rendered
from models.recipe.eye.resize import fitted
from models.recipe.eye.rows import attributes_of_cells, rows_of, scores_of, values_of, vectors_of
from models.recipe.eye.scene import Scene, draw_scene
from models.recipe.eye.text_model import TextModel
from models.recipe.optimizer import Muon
from models.recipe.precision import PRODUCTS
from models.recipe.processes import ALONE
from models.recipe.train import keep_freed_memory

STAGES = ("sight", "project", "match")
_NOT_ASKED = -100  # torch leaves it out of a cross entropy
_NEAR_SHARE = 0.1  # of the cross entropies in the loss of a row
_SAVE_SECONDS = 60
_LOG_EVERY = 25


class Store:
    """Drawn pictures with their attributes, of which some are replaced by new ones at each step."""

    def __init__(self, plan: EyePlan, draw: Draw) -> None:
        self._plan, self._draw = plan, draw
        self._pixels = np.empty((plan.store, plan.image_size, plan.image_size, 3), np.uint8)
        self._attributes = np.empty((plan.store, len(SIZES)), np.int64)
        self._count = 0
        self._random = random.Random(plan.seed)

    def batch(self) -> tuple[Tensor, Tensor]:
        """Pixels and attributes: the new ones, and some of the older ones."""
        size = self._plan.sight_batch
        new = size if self._count < size else round(size * self._plan.fresh_share)
        chosen = [self._add() for _ in range(new)]
        chosen += [self._random.randrange(min(self._count, self._plan.store)) for _ in range(size - new)]
        self._random.shuffle(chosen)
        return torch.from_numpy(self._pixels[chosen]), torch.from_numpy(self._attributes[chosen])

    def _add(self) -> int:
        spot = self._count % self._plan.store
        scene = draw_scene(self._draw)
        self._pixels[spot] = pixels_of(self._draw, scene, self._plan.image_size)
        self._attributes[spot] = attributes_of(scene)
        self._count += 1
        return spot


def pixels_of(draw: Draw, scene: Scene, size: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """A scene drawn at some size and brought to the encoder's."""
    return fitted(rendered(draw, scene, draw_size(draw, size)), size)


class Trainer:
    """The encoder with its projector and their state: the content of a checkpoint."""

    def __init__(self, plan: EyePlan, text: TextModel) -> None:
        self.plan = plan
        self._vectors = vectors_of(text, seed=plan.seed)
        shape = plan.shape(text.shape.n_embd)
        self.eye = Eye(shape, seed=plan.seed, precision=PRODUCTS)
        # They say whether the encoder sees each attribute; they are not part of the file.
        self.heads = nn.ModuleList(nn.Linear(shape.widths[-1], size) for size in SIZES)
        for parameter in self.heads.parameters():
            nn.init.zeros_(parameter)
        self.optimizers = {
            "sight": self._optimizers(lambda name: not name.startswith("mm")),
            "project": self._optimizers(lambda name: name.startswith(("mm", "v__vision_pos"))),
            "match": self._optimizers(lambda _: True),
        }
        self.steps = dict.fromkeys(self.optimizers, 0)

    def _optimizers(self, is_learned: Callable[[str], bool]) -> list[torch.optim.Optimizer]:
        learned = {name: each for name, each in self.eye.named_parameters() if is_learned(name)}
        matrices = {
            name: each for name, each in learned.items() if each.dim() == 2 and "pos_embed" not in name
        }
        others = [each for name, each in learned.items() if name not in matrices]
        return [
            Muon(matrices.values(), ALONE, lr=0.0, weight_decay=0.02),
            torch.optim.AdamW([*others, *self.heads.parameters()], betas=(0.9, 0.98), weight_decay=0.0),
        ]

    def run(self, name: str) -> Iterator[dict[str, float]]:
        """The steps that a stage lacks; each gives its figures. A resumed run draws other pictures."""
        self._draw = Draw(f"eye-{self.plan.seed}-{name}-{self.steps}", held_out=False)
        store = Store(self.plan, self._draw)
        total, peak = self.plan.stage(name)
        optimizers = self.optimizers[name]
        parameters = [p for each in optimizers for group in each.param_groups for p in group["params"]]
        while self.steps[name] < total:
            rate = peak * self.plan.share(self.steps[name], total)
            for optimizer in optimizers:
                optimizer.zero_grad()
                for group in optimizer.param_groups:
                    group["lr"] = rate
            pixels, attributes = self._recoloured(*store.batch())
            with torch.set_grad_enabled(name != "project"):
                cells = self.eye.cells(pixels)
            features = self.eye.placed(cells)
            loss, right = (self.told if name == "sight" else self.given)(features, attributes)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            for optimizer in optimizers:
                optimizer.step()
            self.steps[name] += 1
            yield {"loss": float(loss.detach()), "right": right, "rate": rate}

    def _recoloured(self, pixels: Tensor, attributes: Tensor) -> tuple[Tensor, Tensor]:
        """Some pictures in colours that have no name, and are not asked for: a shape is to be told in any colour."""
        for row in range(round(len(pixels) * self.plan.recoloured_share)):
            channels = self._draw.sample(range(3), 3)
            pixels[row] = pixels[row][..., channels] ^ (255 if self._draw.chance(0.5) else 0)
            attributes[row, COLOUR_INDEXES] = _NOT_ASKED
        return pixels, attributes

    def given(self, features: Tensor, attributes: Tensor) -> tuple[Tensor, float]:
        """The loss of giving the rows that stand for the attributes, and the share that is nearest to the right one.

        It is the squared distance, in shares of the rows' spread, and the cross entropy of which value is near.
        """
        rows = self.eye.projected(features)
        cells = attributes_of_cells(rows.shape[1])
        missed = (rows - rows_of(self._vectors, attributes.clamp(min=0), rows.shape[1])).square().mean(-1)
        asked = (attributes != _NOT_ASKED)[:, cells]
        away = missed[asked].mean() / self._vectors.var(0, correction=0).mean()
        near = scores_of(self._vectors, values_of(rows))
        return away + _NEAR_SHARE * _told_loss(near, attributes), _right(near, attributes)

    def told(self, features: Tensor, attributes: Tensor) -> tuple[Tensor, float]:
        """The loss of telling the attributes from all cells and from their own, and the share that is right."""
        own, everywhere = values_of(features), features.mean(1)
        near = [head(own[:, index]) for index, head in enumerate(self.heads)]
        far = [head(everywhere) for head in self.heads]
        return _told_loss(near, attributes) + _told_loss(far, attributes), _right(near, attributes)

    def save(self, path: Path) -> None:
        """Write the checkpoint in one piece: a stop in between leaves the older one."""
        partial = path.with_suffix(".partial")
        state = {
            "plan": asdict(self.plan),
            "eye": self.eye.state_dict(),
            "heads": self.heads.state_dict(),
            "optimizers": {
                name: [each.state_dict() for each in group] for name, group in self.optimizers.items()
            },
            "steps": self.steps,
        }
        torch.save(state, partial)
        os.replace(partial, path)

    def load(self, path: Path) -> None:
        state: dict[str, Any] = torch.load(path, weights_only=True)
        self.eye.load_state_dict(state["eye"])
        self.heads.load_state_dict(state["heads"])
        for name, group in self.optimizers.items():
            for optimizer, saved in zip(group, state["optimizers"][name], strict=True):
                optimizer.load_state_dict(saved)
        self.steps = state["steps"]


def _told_loss(scores: Sequence[Tensor], attributes: Tensor) -> Tensor:
    """The sum over the attributes of the cross entropy of each one's scores (batch, values)."""
    losses = [F.cross_entropy(each, attributes[:, index]) for index, each in enumerate(scores)]
    return torch.stack(losses).sum()


def _right(scores: Sequence[Tensor], attributes: Tensor) -> float:
    right = [each.argmax(-1) == attributes[:, index] for index, each in enumerate(scores)]
    return float(torch.stack(right, 1)[attributes != _NOT_ASKED].float().mean())


def train(plan: EyePlan, model: Path, output: Path, *, resume: bool) -> None:
    """Run the steps that a checkpoint in ``output`` lacks. Blocks for some 25 minutes at the plan's sizes."""
    output.mkdir(parents=True, exist_ok=True)
    keep_freed_memory()
    checkpoint = output / "eye.pt"
    trainer = Trainer(plan, TextModel(model))
    if resume and checkpoint.exists():
        trainer.load(checkpoint)
    saved = time.monotonic()
    with (output / "eye.jsonl").open("a" if resume else "w", encoding="utf-8") as log:
        for name in STAGES:
            running: dict[str, float] = {}
            for figures in trainer.run(name):
                running = {
                    key: 0.95 * running.get(key, value) + 0.05 * value for key, value in figures.items()
                }
                step = trainer.steps[name]
                if step % _LOG_EVERY == 0 or step == plan.stage(name)[0]:
                    entry = {"stage": name, "step": step, "cpu_seconds": round(time.process_time())}
                    told = {key: round(value, 4) for key, value in running.items()}
                    print(json.dumps(entry | told), file=log, flush=True)
                if time.monotonic() - saved > _SAVE_SECONDS:
                    trainer.save(checkpoint)
                    saved = time.monotonic()
            trainer.save(checkpoint)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of a run: where it goes, and every field of :class:`EyePlan`."""
    parser.add_argument("--output", type=Path, default=Path("build/jan-tiny-eye"))
    parser.add_argument("--model", type=Path, default=Path("models/builtin/jan-tiny.gguf"))
    parser.add_argument(
        "--resume", action="store_true", help="go on from the checkpoints in the output folder"
    )
    parser.add_argument(
        "--processes",
        type=int,
        default=min(2, os.cpu_count() or 1),
        help="of one thread each, that read (default %(default)s)",
    )
    for field in fields(EyePlan):
        parser.add_argument(
            f"--{field.name.replace('_', '-')}", type=type(field.default), default=field.default
        )


def plan_of(arguments: argparse.Namespace) -> EyePlan:
    """The plan of the parsed options of :func:`add_arguments`."""
    return EyePlan(**{field.name: getattr(arguments, field.name) for field in fields(EyePlan)})


def use_one_thread() -> None:
    """At these sizes a second thread waits longer than it computes."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the eye of the built-in model.")
    add_arguments(parser)
    arguments = parser.parse_args()
    use_one_thread()
    train(plan_of(arguments), arguments.model, arguments.output, resume=arguments.resume)


if __name__ == "__main__":
    main()
