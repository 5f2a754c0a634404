"""Counts answers that loop, and what `stop_loops` makes of them: `python -m benchmarks.loops --model FILE`.

Greedy texts that may not end, in each mode after the same prompts. Whether an answer loops is told here from its text
alone: its last characters are one passage four times or more.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from benchmarks.load import words
from benchmarks.servers import Running, ours, started

_TIMES: Final = 4
_LONGEST: Final = 1_500
"""Characters of a passage."""


def main(
    model: Annotated[Path, typer.Option(help="GGUF to serve")] = Path("models/builtin/jan-tiny.gguf"),
    prompts: Annotated[int, typer.Option(help="number of prompts")] = 40,
    tokens: Annotated[int, typer.Option(help="tokens of each answer")] = 3_600,
    together: Annotated[int, typer.Option(help="answers at a time")] = 8,
    flags: Annotated[str, typer.Option(help="flags for jan-serve")] = "",
) -> None:
    texts = [words(seed, 4 + seed % 9) for seed in range(prompts)]
    size = f"--n-ctx {(tokens + 200) * together} --parallel {together} {flags}"
    with started(ours(size), model) as server:
        found = {mode: ask(server, texts, tokens, mode, together) for mode in ("off", "end", "escape")}
    loops = [loops_at_end(answer["text"]) for answer in found["off"]]
    for mode, answers in found.items():
        stopped = [answer.get("stop_reason") == "repetition_detected" for answer in answers]
        print(
            f"| {model.stem} | {mode} | {prompts} | {sum(loops)} | {sum(stopped)} |"
            f" {sum(s and not loop for s, loop in zip(stopped, loops, strict=True))} |"
            f" {sum(answer['completion_tokens'] for answer in answers):,} |"
            f" {sum(loops_at_end(answer['text']) for answer in answers)} |"
        )


def ask(server: Running, texts: Sequence[str], tokens: int, mode: str, together: int) -> list[dict[str, Any]]:
    def one(text: str) -> dict[str, Any]:
        body = {
            "prompt": text,
            "max_tokens": tokens,
            "temperature": 0,
            "repeat_penalty": 1,
            "ignore_eos": True,
        }
        request = urllib.request.Request(
            server.base + "/v1/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json", "x-jan-serve-stop-loops": mode},
        )
        with urllib.request.urlopen(request, timeout=3_600) as response:
            answer: dict[str, Any] = json.load(response)
        return answer["choices"][0] | answer["usage"]

    with ThreadPoolExecutor(together) as pool:
        return list(pool.map(one, texts))


def loops_at_end(text: str) -> bool:
    tails = (text[-_TIMES * size :] for size in range(1, min(_LONGEST, len(text) // _TIMES) + 1))
    return any(tail[: -len(tail) // _TIMES] == tail[len(tail) // _TIMES :] for tail in tails)


if __name__ == "__main__":
    typer.run(main)
