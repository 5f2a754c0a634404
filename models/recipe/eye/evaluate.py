"""Measures the built-in model's eye on held-out pictures: greedy, exact match of the answer, through llama.cpp.

    python -m models.recipe.eye.evaluate [--count 200] [--json] [--failures 3]

Seeds, wordings of questions and what a picture shows (its caption) are never trained on. Half of the pictures have the
encoder's own size, half another one. Before some answers the model is to think. Needs llama-cpp-python and numpy;
neither torch nor tokenizers.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

from models.recipe.corpus.conversation import ask
from models.recipe.corpus.draw import Draw
from models.recipe.evaluate import Row, table
from models.recipe.eye.questions import ROWS, THOUGHT, Skill, draw_exchange
from models.recipe.eye.raster import draw_size, rendered
from models.recipe.eye.resize import Pixels
from models.recipe.eye.scene import Kind, draw_scene
from models.recipe.eye.seeing import MARKER, SeeingModel

IMAGE_SIZE = 32
_PICTURE_LAST_SHARE = 0.2
_THINKING_SHARE = 0.2
_LARGE_SHARE = 0.1
_LARGE = (224, 640)


def questions(draw: Draw, skill: Skill, kinds: tuple[Kind, ...]) -> Iterator[tuple[Pixels, str, str]]:
    """Pictures, prompts and answers, without end."""
    while True:
        scene = draw_scene(draw, draw.choice(kinds))
        exchange = draw_exchange(draw, scene, skill)
        size = draw.between(*_LARGE) if draw.chance(_LARGE_SHARE) else draw_size(draw, IMAGE_SIZE)
        last = draw.chance(_PICTURE_LAST_SHARE)
        content = exchange.question + MARKER if last else MARKER + exchange.question
        chat = ask(content, exchange.answer, thought=THOUGHT)
        chat = replace(chat, thinking=draw.chance(_THINKING_SHARE))
        yield rendered(draw, scene, size), chat.prompt(), chat.answer


def evaluate(model: SeeingModel, *, count: int, seed: str) -> list[Row]:
    """The whole table, ``count`` pictures a row. Blocks for some minutes."""
    rows: list[Row] = []
    for name, threshold, skill, kinds in ROWS:
        row = Row(name, threshold)
        source = questions(Draw(f"{seed}-{name}", held_out=True), skill, kinds)
        for _ in range(count):
            pixels, prompt, answer = next(source)
            said = model.answer(prompt, pixels)
            row.add(said == answer, prompt, answer, said)
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the built-in model's eye on held-out pictures.")
    parser.add_argument("--model", type=Path, default=Path("models/builtin/jan-tiny.gguf"))
    parser.add_argument("--projector", type=Path, default=Path("models/builtin/mmproj-jan-tiny.gguf"))
    parser.add_argument("--count", type=int, default=200, help="pictures a row")
    parser.add_argument("--seed", default="evaluation")
    parser.add_argument("--json", action="store_true", help="print JSON, failures included")
    parser.add_argument("--failures", type=int, default=0, metavar="N", help="show N failures of each row")
    parser.add_argument("--strict", action="store_true", help="exit 1 when a row misses its threshold")
    arguments = parser.parse_args()
    model = SeeingModel(arguments.model, arguments.projector)
    rows = evaluate(model, count=arguments.count, seed=arguments.seed)
    if arguments.json:
        print(json.dumps([asdict(row) | {"share": row.share, "passed": row.passed} for row in rows]))
    else:
        print(table(rows))
        for row in rows:
            for failure in row.failures[: arguments.failures]:
                print(f"\n{row.name}\n  {failure['prompt']!r}")
                print(f"  wanted {failure['wanted']!r}\n  said   {failure['said']!r}")
    if arguments.strict and not all(row.passed for row in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
