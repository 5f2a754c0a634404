"""What a tool call costs in each order of properties: `python -m benchmarks.call_cost --model FILE`.

A model has to call one tool at a time, with the same questions and each `property_order` of the server in turn. For a
call: tokens, those of them that the grammar left no choice about, and CPU time of the server; without the first call of
a tool, which compiles its schema and reads its prompt. Then the calls that ended before the limit of tokens, and those
of them that have the properties as the schema lists them.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer

from benchmarks.load import words
from benchmarks.servers import Running, ours, started

ORDERS: Final = {"schema": "--property-order schema", "any": "--property-order any", "listed": ""}
"""The last one is the default of calls."""
TOOLS: Final = Path(__file__).with_name("agent_tools.json")
_FORCED: Final = "jan_serve_engine_forced_tokens_total"
_LEAST: Final = 3
"""Properties of a tool that are worth an order."""


class Call(NamedTuple):
    tokens: int
    forced: float
    cpu_s: float
    finished: bool
    in_order: bool


def main(
    model: Annotated[Path, typer.Option(help="GGUF to serve")] = Path("models/builtin/jan-tiny.gguf"),
    questions: Annotated[int, typer.Option(help="calls of each tool in each order")] = 4,
    tokens: Annotated[int, typer.Option(help="limit of tokens of a call")] = 160,
    temperature: Annotated[float, typer.Option(help="of the calls")] = 0.0,
    flags: Annotated[str, typer.Option(help="flags for jan-serve")] = "",
) -> None:
    listed: list[dict[str, Any]] = json.loads(TOOLS.read_text(encoding="utf-8"))
    tools = [each for each in listed if len(each["input_schema"]["properties"]) >= _LEAST]
    for order, flag in ORDERS.items():
        with started(ours(f"--n-ctx 4096 {flag} {flags}"), model) as server:
            calls = [
                call
                for tool in tools
                for call in [asked(server, tool, seed, tokens, temperature) for seed in range(questions + 1)][
                    1:
                ]
            ]
        finished = [call for call in calls if call.finished]
        print(
            f"| {model.stem} | {order} | {len(calls)} | {len(finished)} |"
            f" {statistics.mean(call.tokens for call in calls):.1f} |"
            f" {statistics.mean(call.forced for call in calls):.1f} |"
            f" {1e3 * statistics.mean(call.cpu_s for call in calls):.0f} |"
            f" {1e3 * sum(call.cpu_s for call in calls) / sum(call.tokens for call in calls):.2f} |"
            f" {sum(call.in_order for call in finished)} |"
        )


def asked(server: Running, tool: dict[str, Any], seed: int, tokens: int, temperature: float) -> Call:
    """One call of a tool. A call that the limit cut off has no arguments to judge."""
    body = {
        "messages": [{"role": "user", "content": f"Use the tool {tool['name']} for this: {words(seed, 8)}."}],
        "tools": [
            {"type": "function", "function": {"name": tool["name"], "parameters": tool["input_schema"]}}
        ],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "max_tokens": tokens,
        "temperature": temperature,
        "seed": seed,
    }
    before, forced_before = server.cpu_seconds(), server.counters()[_FORCED]
    reply = server.post("/v1/chat/completions", body)
    cpu_s = server.cpu_seconds() - before
    choice = reply["choices"][0]
    finished = choice["finish_reason"] == "tool_calls"
    arguments = json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"]) if finished else {}
    listed = [name for name in tool["input_schema"]["properties"] if name in arguments]
    return Call(
        reply["usage"]["completion_tokens"],
        server.counters()[_FORCED] - forced_before,
        cpu_s,
        finished,
        [name for name in arguments if name in listed] == listed,
    )


if __name__ == "__main__":
    typer.run(main)
