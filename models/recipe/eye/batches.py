"""Pictures with questions as the input of one optimizer step.

A picture is read once for all of its questions: they stand in one sequence as branches that do not see each other, or,
as in a chat, one after the other.
"""

# The training packages are apart from the product's environment, in which types are checked.
# pyright: reportMissingImports=false

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from models.recipe.chat_template import THINK_LINE
from models.recipe.corpus.conversation import ask
from models.recipe.corpus.draw import Draw
from models.recipe.corpus.mixture import SYSTEM_PROMPTS
from models.recipe.eye.projector_file import AFTER, BEFORE
from models.recipe.eye.questions import THOUGHT, Exchange, draw_exchange
from models.recipe.eye.scene import Scene, draw_scene
from models.recipe.tokenizer import Encoder
from models.recipe.vocabulary import TURN_END, TURN_START

_IMAGE = -1  # stands for one row of the picture's embedding
_SYSTEM_SHARE = 0.15
_PICTURE_LAST_SHARE = 0.2
_CHAT_SHARE = 0.25
_THINKING_SHARE = 0.25
_STEPS_AHEAD = 32


class Token(NamedTuple):
    """``id`` is ``_IMAGE`` for the picture's rows; ``branch`` 0 is seen by all; ``learned``: of an answer."""

    id: int
    branch: int
    position: int
    learned: bool


@dataclass
class Prompt:
    """A picture with questions about it and their answers."""

    tokens: list[Token] = field(default_factory=list)

    def add(self, ids: Sequence[int], *, branch: int, start: int, learned: bool = False) -> int:
        """Append ids from position ``start``; the position after them."""
        self.tokens += [Token(each, branch, position, learned) for position, each in enumerate(ids, start)]
        return start + len(ids)

    def only(self, branch: int) -> Prompt:
        """What one branch sees, with nothing of the others."""
        return Prompt([token for token in self.tokens if token.branch in (0, branch)])


class Writer:
    """Turns a scene into a sequence with several questions about it."""

    def __init__(self, encoder: Encoder, draw: Draw, *, image_tokens: int, questions: int) -> None:
        self._encode, self._draw = encoder.encode, draw
        self._image = [*self._encode(BEFORE), *[_IMAGE] * image_tokens, *self._encode(AFTER)]
        self._questions = questions

    def write(self, scene: Scene) -> Prompt:
        draw = self._draw
        exchanges = self._exchanges(scene)
        prompt = Prompt()
        thinking = draw.chance(_THINKING_SHARE)
        system = [draw.choice(SYSTEM_PROMPTS)] if draw.chance(_SYSTEM_SHARE) else []
        opening = f"{TURN_START}user\n"
        if thinking or system:
            text = "\n\n".join([*system, *([THINK_LINE] if thinking else [])])
            opening = f"{TURN_START}system\n{text}{TURN_END}\n{opening}"
        start = prompt.add(self._encode(opening), branch=0, start=0)
        if draw.chance(_PICTURE_LAST_SHARE):
            exchanges = exchanges[: max(1, self._questions // 2)]
            for branch, exchange in enumerate(exchanges, 1):
                after = prompt.add(self._encode(exchange.question), branch=branch, start=start)
                after = prompt.add(self._image, branch=branch, start=after)
                self._finish(prompt, exchange, branch, after, thinking=thinking)
            return prompt
        start = prompt.add(self._image, branch=0, start=start)
        chat = not thinking and draw.chance(_CHAT_SHARE)  # earlier answers stand there without their thoughts
        for branch, exchange in enumerate(exchanges, 1):
            if chat and branch > 1:
                start = prompt.add(self._encode(f"\n{TURN_START}user\n"), branch=0, start=start)
            after = prompt.add(self._encode(exchange.question), branch=0 if chat else branch, start=start)
            after = self._finish(prompt, exchange, 0 if chat else branch, after, thinking=thinking)
            start = after if chat else start
        return prompt

    def asked(self, exchange: Exchange) -> Prompt:
        """A picture with one question after it."""
        prompt = Prompt()
        start = prompt.add(self._encode(f"{TURN_START}user\n"), branch=0, start=0)
        start = prompt.add(self._image, branch=0, start=start)
        start = prompt.add(self._encode(exchange.question), branch=0, start=start)
        self._finish(prompt, exchange, 0, start)
        return prompt

    def _exchanges(self, scene: Scene) -> list[Exchange]:
        found: list[Exchange] = []
        for _ in range(3 * self._questions):
            exchange = draw_exchange(self._draw, scene)
            if all(exchange.question != each.question for each in found):
                found.append(exchange)
            if len(found) == self._questions:
                break
        return found

    def _finish(
        self, prompt: Prompt, exchange: Exchange, branch: int, start: int, *, thinking: bool = False
    ) -> int:
        answer = replace(ask("", exchange.answer, thought=THOUGHT), thinking=thinking).answer
        start = prompt.add(self._encode(f"{TURN_END}\n{TURN_START}assistant\n"), branch=branch, start=start)
        return prompt.add(self._encode(answer + TURN_END), branch=branch, start=start, learned=True)


class LikeLengths:
    """Scenes with their prompts for one step after another, half of them of two shapes: these take longest to learn.

    The prompts of a step have like lengths, so that little is padded: those of some steps are drawn at once and sorted
    by length. ``order`` draws in which order these steps come.
    """

    def __init__(self, draw: Draw, writer: Writer, *, half: int, order: random.Random) -> None:
        self._draw, self._writer, self._half, self._order = draw, writer, half, order
        self._steps: list[list[tuple[Scene, Prompt]]] = []

    def __next__(self) -> list[tuple[Scene, Prompt]]:
        if not self._steps:
            size = 2 * self._half
            kinds = ("two", None) * (self._half * _STEPS_AHEAD)
            scenes = [draw_scene(self._draw, kind) for kind in kinds]
            pairs = [(scene, self._writer.write(scene)) for scene in scenes]
            pairs.sort(key=lambda pair: len(pair[1].tokens))
            self._steps = [pairs[start : start + size] for start in range(0, len(pairs), size)]
            self._order.shuffle(self._steps)
        return self._steps.pop()


@dataclass(frozen=True)
class TextBatch:
    """Padded prompts. ``images``: where pictures stand; ``targets``: the next ids, ``wanted`` the learned ones."""

    ids: Tensor
    images: Tensor
    positions: Tensor
    mask: Tensor
    targets: Tensor
    wanted: Tensor


def text_batch(prompts: Sequence[Prompt], *, pad: int) -> TextBatch:
    """Prompts as one tensor each of what the text model needs."""
    length = max(len(prompt.tokens) for prompt in prompts)
    rows = torch.zeros(len(prompts), length, 4, dtype=torch.long)
    rows[...] = torch.tensor(Token(pad, -1, 0, False))
    for row, prompt in enumerate(prompts):
        rows[row, : len(prompt.tokens)] = torch.tensor(prompt.tokens)
    ids, branches, positions, learned = rows.unbind(-1)
    seen = torch.ones(length, length, dtype=torch.bool).tril()
    theirs = (branches[:, None, :] == 0) | (branches[:, None, :] == branches[:, :, None])
    mask = torch.zeros(len(prompts), length, length).masked_fill_(~(seen & theirs), float("-inf"))
    images = ids == _IMAGE
    known = ids.clamp(min=0)
    wanted = learned.roll(-1, 1).bool()
    wanted[:, -1] = False
    return TextBatch(known, images, positions, mask, known.roll(-1, 1), wanted)
