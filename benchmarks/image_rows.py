"""The rows for a model that sees: `python -m benchmarks.bench_projector MODEL` writes its projector beside it."""

from __future__ import annotations

import base64
import io
import json
import urllib.request
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.figures import Figures, Skipped
from benchmarks.load import Job, burst, words
from benchmarks.servers import Running

_SIDE = 448


def first_image(server: Running, seed: int) -> Figures:
    """A question about an image that the server has not seen."""
    _warm(server, seed)
    outcome = burst(server.base, [_job([_asked(seed, "first")])])
    return {"first_ms": outcome.first_ms, "prompt_tokens": outcome.timings[0].prompt_tokens}


def second_question(server: Running, seed: int) -> Figures:
    """The next turn of a conversation about an image."""
    _warm(server, seed)
    turns = [_asked(seed, "second")]
    answer = burst(server.base, [_job(turns)]).timings[0].text
    turns += [{"role": "assistant", "content": answer}, {"role": "user", "content": words(seed, 10)}]
    return {"first_ms": burst(server.base, [_job(turns)]).first_ms}


def eight_clients(server: Running, seed: int) -> Figures:
    """Eight clients ask at once about the same image, which the server has not seen."""
    _warm(server, seed)
    jobs = [_job([_asked(seed, "eight", number)]) for number in range(8)]
    outcome = burst(server.base, jobs)
    return {
        "last_first_s": max(timing.first_s for timing in outcome.timings),
        "first_ms": outcome.first_ms,
        "wall_s": outcome.wall_s,
    }


def _warm(server: Running, seed: int) -> None:
    """Load the model. Raises Skipped if it does not see."""
    burst(server.base, [Job(words(seed, 5), 1)])
    with urllib.request.urlopen(f"{server.base}/props", timeout=30.0) as response:
        if not json.load(response).get("modalities", {}).get("vision"):
            raise Skipped("the model does not see")


def _job(turns: list[dict[str, Any]]) -> Job:
    return Job("", 8, {"messages": turns})


def _asked(seed: int, row: str, question: int = 0) -> dict[str, Any]:
    image = {"type": "image_url", "image_url": {"url": _picture(f"{row}-{seed}")}}
    text = {"type": "text", "text": words(seed * 100 + question, 10)}
    return {"role": "user", "content": [image, text]}


def _picture(name: str) -> str:
    """A PNG of noise as a data URL; the same for the same name."""
    random = np.random.default_rng(list(name.encode()))
    blocks = random.integers(0, 256, (_SIDE // 16, _SIDE // 16, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(blocks.repeat(16, 0).repeat(16, 1)).save(file, "PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
