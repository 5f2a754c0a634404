"""Trains the eye of the built-in model: a vision encoder whose rows the text model reads, which stays as it is.

    python -m models.recipe.eye.train --output build/jan-tiny-eye [--resume]

1. ``codes``: rows for each value of each attribute of a scene, learned through the text model, with no picture at all:
   what it has to read to answer.
2. ``sight``: the encoder learns from pictures to tell the attributes. This needs no text model, whose passes cost most.
3. ``match``: it learns to give the rows that stand for them.
4. ``joint``: it learns from the text model's answers themselves.

Writes ``checkpoint.pt`` (every minute or so) and ``log.jsonl``.
"""

# The training packages are apart from the product's environment, in which types are checked.
# pyright: reportMissingImports=false

from __future__ import annotations

import argparse
import json
import os
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.recipe.corpus.draw import Draw
from models.recipe.eye.attributes import CAPTION_PLACES, COLOUR_INDEXES, SIZES, VALUES, attributes_of
from models.recipe.eye.batches import TextBatch, Writer, text_batch
from models.recipe.eye.convnet import Eye
from models.recipe.eye.frozen_text import FrozenText
from models.recipe.eye.plan import EyePlan
from models.recipe.eye.raster import draw_size, rendered
from models.recipe.eye.resize import fitted
from models.recipe.eye.scene import Scene, draw_scene
from models.recipe.optimizer import Muon
from models.recipe.processes import ALONE
from models.recipe.tokenizer import Encoder
from models.recipe.vocabulary import END_OF_TEXT

STAGES = ("codes", "sight", "match", "joint")
_NOT_ASKED = -100  # torch leaves it out of a cross entropy
_SAVE_SECONDS = 60
_LOG_EVERY = 25


class Codes(nn.Module):
    """Attributes (batch, 8) to rows (batch, tokens, width): one table for each attribute, added up.

    They begin as the tokens of a caption, each attribute at a place of its own: what the text model can copy already.
    """

    def __init__(self, tokens: int, text: FrozenText, *, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        width = text.shape.n_embd
        encode = Encoder(text.vocabulary).encode
        self.base = nn.Parameter(torch.zeros(tokens, width))
        self.tables = nn.ParameterList()
        for values, (start, stop) in zip(VALUES.values(), CAPTION_PLACES, strict=True):
            table = torch.randn(len(values) + 1, tokens, width, generator=generator) * 0.02
            for number, value in enumerate(values, 1):
                ids = torch.tensor(encode(" " + value)[: stop - start], dtype=torch.long)
                table[number, start : start + len(ids)] += text.embedding[ids]
            self.tables.append(table)

    def forward(self, attributes: Tensor) -> Tensor:
        rows = self.base.expand(len(attributes), -1, -1)
        for index, table in enumerate(self.tables):
            rows = rows + table[attributes[:, index]]
        return rows


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
    """The three stages and their state: the content of a checkpoint."""

    def __init__(self, plan: EyePlan, text: FrozenText) -> None:
        self.plan, self.text = plan, text
        shape = plan.shape(text.shape.n_embd)
        self.codes = Codes(shape.tokens, text, seed=plan.seed)
        self.eye = Eye(shape, seed=plan.seed)
        # They say whether the encoder sees each attribute; they are not part of the file.
        self.heads = nn.ModuleList(nn.Linear(shape.widths[-1], size) for size in SIZES)
        for parameter in self.heads.parameters():
            nn.init.zeros_(parameter)
        self.optimizers = {
            "codes": [torch.optim.AdamW(self.codes.parameters(), betas=(0.9, 0.98), weight_decay=0.0)],
            "sight": self._eye_optimizers(projector=False),
            "match": self._eye_optimizers(projector=True),
            "joint": self._joint_optimizers(),
        }
        self.steps = dict.fromkeys(self.optimizers, 0)
        self._pad = text.vocabulary.id_of(END_OF_TEXT)
        self._begin("")

    def _eye_optimizers(self, *, projector: bool) -> list[torch.optim.Optimizer]:
        learned = {
            name: each for name, each in self.eye.named_parameters() if projector or not name.startswith("mm")
        }
        matrices = {
            name: each for name, each in learned.items() if each.dim() == 2 and "pos_embed" not in name
        }
        others = [each for name, each in learned.items() if name not in matrices]
        return [
            Muon(matrices.values(), ALONE, lr=0.0, weight_decay=0.02, precision=torch.float32),
            torch.optim.AdamW([*others, *self.heads.parameters()], betas=(0.9, 0.98), weight_decay=0.0),
        ]

    def _joint_optimizers(self) -> list[torch.optim.Optimizer]:
        """What reads the encoder learns five times as fast as the encoder, which sees already."""
        near = {
            name: each
            for name, each in self.eye.named_parameters()
            if name.startswith(("mm", "v__vision_pos"))
        }
        far = {name: each for name, each in self.eye.named_parameters() if name not in near}
        optimizers: list[torch.optim.Optimizer] = []
        for learned, share in ((near, 1.0), (far, 0.2)):
            matrices = [each for name, each in learned.items() if each.dim() == 2 and "pos_embed" not in name]
            others = [each for each in learned.values() if all(each is not matrix for matrix in matrices)]
            found: list[torch.optim.Optimizer] = [
                Muon(matrices, ALONE, lr=0.0, weight_decay=0.02, precision=torch.float32),
                torch.optim.AdamW(others, betas=(0.9, 0.98), weight_decay=0.0),
            ]
            for optimizer in found:
                for group in optimizer.param_groups:
                    group["share"] = share
            optimizers += found
        return optimizers

    def _begin(self, name: str) -> None:
        """A new part of the endless corpus: a resumed run draws others."""
        draw = Draw(f"eye-{self.plan.seed}-{name}-{self.steps}", held_out=False)
        self._draw = draw
        self._writer = Writer(
            Encoder(self.text.vocabulary),
            draw,
            image_tokens=self.eye.shape.tokens,
            questions=self.plan.questions,
        )
        self._store = Store(self.plan, draw)

    def run(self, name: str) -> Iterator[dict[str, float]]:
        """The steps that a stage lacks; each gives its figures."""
        self._begin(name)
        total, peak = self.plan.stage(name)
        work = {
            "codes": self._code_step,
            "sight": self._sight_step,
            "match": self._match_step,
            "joint": self._joint_step,
        }[name]
        optimizers = self.optimizers[name]
        parameters = [p for each in optimizers for group in each.param_groups for p in group["params"]]
        while self.steps[name] < total:
            rate = peak * self.plan.share(self.steps[name], total)
            for optimizer in optimizers:
                optimizer.zero_grad()
                for group in optimizer.param_groups:
                    group["lr"] = rate * group.get("share", 1.0)
            loss, right = work()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            for optimizer in optimizers:
                optimizer.step()
            self.steps[name] += 1
            yield {"loss": float(loss.detach()), "right": right, "rate": rate}

    def _code_step(self) -> tuple[Tensor, float]:
        scenes = [draw_scene(self._draw) for _ in range(self.plan.pictures)]
        rows = self.codes(torch.tensor([attributes_of(scene) for scene in scenes]))
        return self._answers(scenes, rows)

    def _joint_step(self) -> tuple[Tensor, float]:
        scenes = [draw_scene(self._draw) for _ in range(self.plan.pictures)]
        pixels = np.stack([pixels_of(self._draw, scene, self.plan.image_size) for scene in scenes])
        return self._answers(scenes, self.eye(torch.from_numpy(pixels)))

    def _answers(self, scenes: list[Scene], rows: Tensor) -> tuple[Tensor, float]:
        """The loss of the text model's answers, and the share of their tokens that are right."""
        batch = text_batch([self._writer.write(scene) for scene in scenes], pad=self._pad)
        hidden = self.text.hidden(self._states(batch, rows), batch.positions, batch.mask)
        logits = F.linear(hidden[batch.wanted], self.text.embedding)
        targets = batch.targets[batch.wanted]
        right = (logits.detach().argmax(-1) == targets).float().mean()
        return F.cross_entropy(logits, targets), float(right)

    def _states(self, batch: TextBatch, rows: Tensor) -> Tensor:
        states = F.embedding(batch.ids, self.text.embedding)
        which = (batch.images.long().cumsum(1) - 1) % rows.shape[1]
        pictures = rows[torch.arange(len(rows))[:, None], which]
        return torch.where(batch.images[..., None], pictures, states)

    def _sight_step(self) -> tuple[Tensor, float]:
        pixels, attributes = self._recoloured(*self._store.batch())
        return self._named(self.eye.features(pixels), attributes)

    def _recoloured(self, pixels: Tensor, attributes: Tensor) -> tuple[Tensor, Tensor]:
        """Some pictures in colours that have no name, and are not asked for: a shape is to be told in any colour."""
        for row in range(round(len(pixels) * self.plan.recoloured_share)):
            channels = self._draw.sample(range(3), 3)
            pixels[row] = pixels[row][..., channels] ^ (255 if self._draw.chance(0.5) else 0)
            attributes[row, COLOUR_INDEXES] = _NOT_ASKED
        return pixels, attributes

    def _match_step(self) -> tuple[Tensor, float]:
        pixels, attributes = self._store.batch()
        with torch.no_grad():
            aim = self.codes(attributes)
        features = self.eye.features(pixels)
        named, right = self._named(features, attributes)
        away = F.mse_loss(self.eye.projected(features), aim) / aim.var(0).mean()
        return away + 0.5 * named, right

    def _named(self, features: Tensor, attributes: Tensor) -> tuple[Tensor, float]:
        """The loss of telling the attributes, and the share that is right.

        They are told from all tokens, and from a few: each row of the projector is made of one token.
        """
        few = self._draw.sample(range(features.shape[1]), self.plan.few_tokens)
        logits = [head(features.mean(1)) for head in self.heads]
        from_few = [head(features[:, few].mean(1)) for head in self.heads]
        losses = [
            F.cross_entropy(each, attributes[:, index])
            for told in (logits, from_few)
            for index, each in enumerate(told)
        ]
        right = [each.argmax(-1) == attributes[:, index] for index, each in enumerate(logits)]
        asked = attributes != _NOT_ASKED
        return torch.stack(losses).sum(), float(torch.stack(right, 1)[asked].float().mean())

    def save(self, path: Path) -> None:
        """Write the checkpoint in one piece: a stop in between leaves the older one."""
        partial = path.with_suffix(".partial")
        state = {
            "plan": asdict(self.plan),
            "codes": self.codes.state_dict(),
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
        for name in ("codes", "eye", "heads"):
            getattr(self, name).load_state_dict(state[name])
        for name, group in self.optimizers.items():
            for optimizer, saved in zip(group, state["optimizers"][name], strict=True):
                optimizer.load_state_dict(saved)
        self.steps = state["steps"]


def train(
    plan: EyePlan, model: Path, output: Path, *, resume: bool, stages: Sequence[str] = STAGES
) -> Trainer:
    """Run the ``stages`` that a checkpoint in ``output`` lacks. Blocks for most of an hour at the plan's sizes."""
    output.mkdir(parents=True, exist_ok=True)
    checkpoint = output / "checkpoint.pt"
    trainer = Trainer(plan, FrozenText(model))
    if resume and checkpoint.exists():
        trainer.load(checkpoint)
    saved = time.monotonic()
    with (output / "log.jsonl").open("a" if resume else "w", encoding="utf-8") as log:
        for name in stages:
            running: dict[str, float] = {}
            for figures in trainer.run(name):
                running = {
                    key: 0.95 * running.get(key, value) + 0.05 * value for key, value in figures.items()
                }
                step = trainer.steps[name]
                if step % _LOG_EVERY == 0 or step == plan.stage(name)[0]:
                    entry = {"stage": name, "step": step, "cpu_seconds": round(time.process_time())}
                    print(
                        json.dumps(entry | {key: round(value, 4) for key, value in running.items()}),
                        file=log,
                        flush=True,
                    )
                if time.monotonic() - saved > _SAVE_SECONDS:
                    trainer.save(checkpoint)
                    saved = time.monotonic()
            trainer.save(checkpoint)
    return trainer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of a run: where it goes, and every field of :class:`EyePlan`."""
    parser.add_argument("--output", type=Path, default=Path("build/jan-tiny-eye"))
    parser.add_argument("--model", type=Path, default=Path("models/builtin/jan-tiny.gguf"))
    parser.add_argument(
        "--resume", action="store_true", help="go on from the checkpoint in the output folder"
    )
    parser.add_argument("--stages", type=lambda text: text.split(","), default=STAGES)
    for field in fields(EyePlan):
        parser.add_argument(
            f"--{field.name.replace('_', '-')}", type=type(field.default), default=field.default
        )


def train_as(arguments: argparse.Namespace) -> None:
    """Train as the parsed options of :func:`add_arguments` say, in one thread."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    plan = EyePlan(**{field.name: getattr(arguments, field.name) for field in fields(EyePlan)})
    train(plan, arguments.model, arguments.output, resume=arguments.resume, stages=arguments.stages)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the eye of the built-in model.")
    add_arguments(parser)
    train_as(parser.parse_args())


if __name__ == "__main__":
    main()
