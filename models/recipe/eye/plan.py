"""The plan of the training of the eye: sizes, numbers of steps, rates."""

from __future__ import annotations

import math
from dataclasses import dataclass

from models.recipe.eye.projector_file import EyeShape


@dataclass(frozen=True)
class EyePlan:
    """All parameters of a run of :mod:`models.recipe.eye.reading` and :mod:`models.recipe.eye.train`."""

    seed: int = 1
    image_size: int = 32
    patch_size: int = 2
    first_width: int = 32
    first_blocks: int = 2
    width: int = 80
    blocks: int = 4
    expansion: int = 3
    reading_steps: int = 2000
    reading_rate: float = 1.5e-3
    reading_scenes: int = 8
    reading_questions: int = 5
    other_share: float = 0.4
    noise: float = 0.4
    replay_rows: int = 4
    replay_weight: float = 6.0
    settle_steps: int = 1400
    settle_rate: float = 1.5e-3
    settle_rows: int = 10
    settle_weight: float = 30.0
    text_share: float = 0.9
    sight_steps: int = 8000
    sight_batch: int = 64
    sight_rate: float = 5e-3
    project_steps: int = 400
    project_rate: float = 4e-3
    match_steps: int = 3000
    match_rate: float = 2.5e-3
    store: int = 60_000
    fresh_share: float = 0.25
    recoloured_share: float = 0.4
    warmup_steps: int = 40

    def shape(self, n_text: int) -> EyeShape:
        return EyeShape(
            self.image_size,
            self.patch_size,
            (self.first_width, self.width),
            (self.first_blocks, self.blocks),
            self.expansion,
            n_text,
        )

    def reading(self, step: int) -> tuple[float, int, float]:
        """Of a step: the rate, and the rows (of :mod:`models.recipe.batches`) and the weight of the text model's own
        corpus.

        The last steps have more of these, so that what was lost of it at first comes back.
        """
        late = step - self.reading_steps
        if late < 0:
            rate = self.reading_rate * self.share(step, self.reading_steps)
            return rate, self.replay_rows, self.replay_weight
        return self.settle_rate * self.share(late, self.settle_steps), self.settle_rows, self.settle_weight

    def stage(self, name: str) -> tuple[int, float]:
        """The steps and the peak rate of a stage of the eye."""
        return {
            "sight": (self.sight_steps, self.sight_rate),
            "project": (self.project_steps, self.project_rate),
            "match": (self.match_steps, self.match_rate),
        }[name]

    def share(self, step: int, steps: int) -> float:
        """What a rate is multiplied with: a warm-up, then a cosine down to a five-hundredth."""
        fall = 0.5 * (1 + math.cos(math.pi * min(1.0, step / steps)))
        return min(1.0, (step + 1) / self.warmup_steps) * max(0.002, fall)
