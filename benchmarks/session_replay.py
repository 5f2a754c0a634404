"""Plays recorded sessions of agents on our server and on others in turn: `python -m benchmarks.session_replay FILE …`.

A file has one request a line: `{"path", "headers", "body"}`, as `tests.clients.record_agents` writes it. Without
files, the generated session of `agent_session` is played. Answers are cut short, so that a turn is the reading of its
prompt; the history is the recorded one. Prints the wall and CPU time of all turns and of those after the first; from
the second turn on, the share of prompt tokens that was computed (anew), and of those that were there a turn before
(twice); and the answers with the status of an error.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from benchmarks.agent_session import agent_requests
from benchmarks.servers import Refused, Running, ours, peer_of, started

_LIMITS: Final = {"/v1/responses": "max_output_tokens", "/v1/messages": "max_tokens"}
_ANSWER_TOKENS: Final = 16

Request = dict[str, Any]


def main(
    files: Annotated[list[Path] | None, typer.Argument(help="recorded sessions")] = None,
    model: Annotated[Path, typer.Option(help="GGUF to serve")] = Path("models/builtin/jan-tiny.gguf"),
    flags: Annotated[str, typer.Option(help="flags for jan-serve")] = "",
    peer_cmd: Annotated[
        list[str] | None, typer.Option(help="[NAME=]command with {model} and {port}; may be repeated")
    ] = None,
) -> None:
    sessions = {
        path.stem: list(_requests(path.read_text(encoding="utf-8").splitlines())) for path in files or ()
    }
    if not sessions:
        generated = [{"path": "/v1/messages", "body": body} for body in agent_requests("default", 1)]
        sessions = {"generated": generated}
    commands = [ours(flags), *map(peer_of, peer_cmd or ())]
    print(
        "| session | server | turns | wall s | CPU s | wall after the first | prompt tokens | anew | twice | errors |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name, requests in sessions.items():
        for command in commands:
            with started(command, model) as server:
                print(
                    f"| {name} | {command.name} | {len(requests)} | {_row(play(server, requests))} |",
                    flush=True,
                )


def _requests(lines: Iterable[str]) -> Iterator[Request]:
    for line in lines:
        yield json.loads(line)


def play(server: Running, requests: Iterable[Request]) -> list[dict[str, Any]]:
    """Figures of each turn: wall_s, cpu_s, prompt and computed tokens, and the error, if any."""
    turns: list[dict[str, Any]] = []
    for request in requests:
        began, cpu = time.perf_counter(), server.cpu_seconds()
        turn: dict[str, Any] = {"prompt": 0, "computed": 0, "error": ""}
        try:
            answer = server.post(request["path"], short(request), request.get("headers"))
            turn["prompt"], turn["computed"] = tokens(answer["usage"])
        except Refused as refused:
            turn["error"] = str(refused)
        turns.append(turn | {"wall_s": time.perf_counter() - began, "cpu_s": server.cpu_seconds() - cpu})
    return turns


def short(request: Request) -> dict[str, Any]:
    """The body for a whole answer of few tokens, from the server's only model."""
    dropped = ("stream", "stream_options", "max_tokens", "max_completion_tokens", "max_output_tokens")
    kept = {name: value for name, value in request["body"].items() if name not in dropped}
    limit = _LIMITS.get(request["path"].partition("?")[0], "max_tokens")
    return kept | {"model": "default", "stream": False, limit: _ANSWER_TOKENS}


def tokens(usage: dict[str, Any]) -> tuple[int, int]:
    """Those of the prompt, and how many of them were computed, in OpenAI's form or Anthropic's."""
    if "cache_read_input_tokens" in usage:
        anew = usage["input_tokens"] + (usage.get("cache_creation_input_tokens") or 0)
        return anew + usage["cache_read_input_tokens"], anew
    total = usage.get("prompt_tokens", usage.get("input_tokens", 0))
    details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details") or {}
    return total, total - (details.get("cached_tokens") or 0)


def _row(turns: list[dict[str, Any]]) -> str:
    later = turns[1:]
    prompt = sum(turn["prompt"] for turn in later)
    anew = sum(turn["computed"] for turn in later) / max(1, prompt)
    grown = [(turn, turn["prompt"] - before["prompt"]) for before, turn in itertools.pairwise(turns)]
    again = sum(max(0, turn["computed"] - max(0, more)) for turn, more in grown)
    cells = [f"{sum(turn[name] for turn in turns):.1f}" for name in ("wall_s", "cpu_s")]
    cells += [
        f"{sum(turn['wall_s'] for turn in later):.1f}",
        f"{turns[-1]['prompt']}",
        f"{anew:.1%}",
        f"{again / prompt if prompt else 0:.1%}",
    ]
    return " | ".join([*cells, "; ".join(turn["error"][:160] for turn in turns if turn["error"]) or "none"])


if __name__ == "__main__":
    typer.run(main)
