"""The measurements that users notice. A row runs against a started server and returns named figures."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks import (
    agent_rows,
    burst_rows,
    cache_rows,
    device_rows,
    image_rows,
    load_rows,
    scoring_rows,
    start_rows,
)
from benchmarks.figures import Figures
from benchmarks.load import Job, burst, words
from benchmarks.servers import Running
from jan_serve.store.gguf.model_file import read_model_file
from jan_serve.store.model_advice import memory_bandwidth

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 12}, "minItems": 3, "maxItems": 6},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class Row:
    """A measurement. `headline`: the figure to compare; `lower_is_better`: its direction.

    needs_ctx: tokens that one sequence has at least; a server of less is not asked.
    """

    name: str
    why: str
    headline: str
    unit: str
    lower_is_better: bool
    run: Callable[[Running, int], Figures] = field(repr=False)
    needs_ctx: int = 0


def one_stream(server: Running, seed: int) -> Figures:
    """One client of a server with a loaded model; greedy.

    `bandwidth_share`: the part of the memory's measured bandwidth that the weights take; absent if all tokens came
    together.
    """
    burst(server.base, [Job(words(seed + 999, 5), 1)])
    outcome = burst(server.base, [Job(words(seed, 20), 64)])
    figures = {"between_ms": outcome.between_ms, "first_ms": outcome.first_ms}
    if server.model is not None and outcome.between_ms:
        rate = 1e3 * read_model_file(server.model).parts.bytes_per_token / outcome.between_ms
        figures["bandwidth_share"] = rate / memory_bandwidth()
    return figures


def one_stream_beside_programs(server: Running, seed: int) -> Figures:
    """`one_stream`, while other programs keep all cores busy."""
    burst(server.base, [Job(words(seed + 999, 5), 1)])
    busy = [sys.executable, "-c", "while True: pass"]
    programs = [subprocess.Popen(busy) for _ in range(os.cpu_count() or 1)]
    try:
        outcome = burst(server.base, [Job(words(seed, 20), 32)])
    finally:
        for program in programs:
            program.kill()
            program.wait()
    return {"between_ms": outcome.between_ms, "first_ms": outcome.first_ms}


def own_prompts(server: Running, seed: int) -> Figures:
    """Eight clients at once, each with its own short prompt."""
    outcome = burst(server.base, [Job(words(seed * 100 + i, 20), 48) for i in range(8)])
    return {
        "tokens_per_s": outcome.tokens_per_s,
        "between_ms": outcome.between_ms,
        "first_ms": outcome.first_ms,
    }


def shared_prefix(server: Running, seed: int) -> Figures:
    """Eight clients at once with one common prefix of about 760 tokens, which is in no cache."""
    prefix = words(seed * 1000 + 7, 270)
    outcome = burst(server.base, [Job(f"{prefix}\n{words(seed * 100 + i, 10)}", 32) for i in range(8)])
    return {"wall_s": outcome.wall_s, "first_ms": outcome.first_ms}


LONG_KEYS = {
    "type": "object",
    "properties": {
        f"the_{number}_measured_value_of_this_report": {"type": "integer", "minimum": 0, "maximum": 99}
        for number in ("first", "second", "third", "fourth", "fifth")
    },
    "additionalProperties": False,
}
LONG_KEYS["required"] = list(LONG_KEYS["properties"])


def _under(schema: object) -> dict[str, object]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}


def schema_cost(server: Running, seed: int) -> Figures:
    """The same server with and without a schema, in turn: one client, and eight."""
    figures: Figures = {}
    for clients, name in ((1, "one"), (8, "eight")):
        burst(server.base, [Job(words(seed + 999, 5), 4, _under(SCHEMA))])
        between: dict[str, list[float]] = {"free": [], "held": []}
        for turn in range(3):
            for kind, extra in (("free", {}), ("held", _under(SCHEMA))):
                jobs = [Job(words(seed * 100 + turn * 10 + i, 20), 48, dict(extra)) for i in range(clients)]
                between[kind].append(burst(server.base, jobs).between_ms)
        free, held = (statistics.median(between[kind]) for kind in ("free", "held"))
        figures |= {f"{name}_free_ms": free, f"{name}_held_ms": held, f"{name}_ratio": held / free}
    return figures


def forced_keys(server: Running, seed: int) -> Figures:
    """Tokens per second under a schema of long fixed keys, relative to free text of as many tokens."""
    held = [burst(server.base, [Job(words(seed + i, 5), 400, _under(LONG_KEYS))]) for i in range(3)]
    tokens = max(8, round(statistics.median(outcome.timings[0].tokens for outcome in held)))
    free = [
        burst(server.base, [Job(words(seed + i, 5), tokens, {"logit_bias": {}, "min_tokens": tokens})])
        for i in range(3)
    ]
    rates = [statistics.median(outcome.tokens_per_s for outcome in each) for each in (held, free)]
    return {"held_tokens_per_s": rates[0], "free_tokens_per_s": rates[1], "speed_up": rates[0] / rates[1]}


def schema_stream(server: Running, seed: int) -> Figures:
    """One client under a JSON schema."""
    extra = {"response_format": {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}}}
    outcome = burst(server.base, [Job(words(seed, 20), 64, extra)])
    return {"between_ms": outcome.between_ms}


def footprint(server: Running, seed: int) -> Figures:
    """Memory of the front and of the workers, and the CPU that the idle server uses (seconds per second)."""
    burst(server.base, [Job(words(seed, 5), 4)])
    before, start = server.cpu_seconds(), time.perf_counter()
    time.sleep(4.0)
    idle = (server.cpu_seconds() - before) / (time.perf_counter() - start)
    rss = server.tree_rss_mb()
    return {"front_mb": rss.get("front", 0.0), "children_mb": rss.get("children", 0.0), "idle_cpu": idle}


def start(server: Running, seed: int) -> Figures:
    """The time from the start of the process to the first token of the first answer."""
    outcome = burst(server.base, [Job(words(seed, 5), 2)])
    return {"ready_s": server.ready_s, "first_token_s": server.ready_s + outcome.first_ms / 1e3}


ROWS = (
    Row("start", "how long one waits after starting it", "first_token_s", "s", True, start),
    Row("version", "the smallest command", "wall_s", "s", True, start_rows.version),
    Row("help", "the list of commands", "wall_s", "s", True, start_rows.help_text),
    Row("run-prompt", "a chat without a server", "prompt_s", "s", True, start_rows.run_prompt),
    Row(
        "first-constrained",
        "the first schema after a load",
        "extra_ms",
        "ms",
        True,
        start_rows.first_constrained,
    ),
    Row("first-schema", "the first request with a schema", "extra_ms", "ms", True, start_rows.first_schema),
    Row("rest", "a server without a model", "rss_mb", "MB", True, start_rows.rest),
    Row("loaded-rest", "a model that nobody asks", "wakeups_per_s", "/s", True, start_rows.loaded_rest),
    Row("one-stream", "how fast an answer reads", "between_ms", "ms", True, one_stream),
    Row(
        "one-stream-beside-programs",
        "how fast an answer reads while the machine has other work",
        "between_ms",
        "ms",
        True,
        one_stream_beside_programs,
    ),
    Row(
        "prompt-512",
        "how soon the answer to a long question begins",
        "prompt_tokens_per_s",
        "tok/s",
        False,
        burst_rows.prompt_row(512),
        needs_ctx=640,
    ),
    Row("own-prompts-8", "an agent with several calls at once", "tokens_per_s", "tok/s", False, own_prompts),
    Row("shared-prefix-8", "agents that share a system prompt", "wall_s", "s", True, shared_prefix),
    Row(
        "burst-300",
        "agents that start at once",
        "wall_s",
        "s",
        True,
        burst_rows.burst_row(8, 300),
        needs_ctx=512,
    ),
    Row(
        "burst-1000",
        "agents that start at once with files",
        "wall_s",
        "s",
        True,
        burst_rows.burst_row(8, 1000),
        needs_ctx=1280,
    ),
    Row("burst-16x100", "more clients than places", "wall_s", "s", True, burst_rows.burst_row(16, 100)),
    Row(
        "arrivals",
        "people who come whenever they like",
        "first_p95_s",
        "s",
        True,
        burst_rows.arrivals,
        needs_ctx=1280,
    ),
    Row("schema-stream", "structured output must not be slower", "between_ms", "ms", True, schema_stream),
    Row("schema-cost", "a schema costs the same server nothing", "one_ratio", "x", True, schema_cost),
    Row("forced-keys", "text that a schema forces is not sampled", "speed_up", "x", False, forced_keys),
    Row(
        "restart-4k",
        "an agent's long prompt is there again after a restart",
        "ratio",
        "x",
        True,
        cache_rows.restart,
        needs_ctx=4608,
    ),
    Row(
        "alternating-4k",
        "two agents take turns",
        "first_ms",
        "ms",
        True,
        cache_rows.alternating,
        needs_ctx=4608,
    ),
    Row(
        "agent-turns",
        "an agent's next turn reads only what is new",
        "wall_s",
        "s",
        True,
        agent_rows.agent_turns,
        needs_ctx=40_960,
    ),
    Row("rerank-100", "search results in their order", "wall_s", "s", True, scoring_rows.rerank_100),
    Row(
        "questions-50",
        "a program that asks much about one text",
        "wall_s",
        "s",
        True,
        scoring_rows.questions_50,
        needs_ctx=4096,
    ),
    Row("first-image", "a question about a picture", "first_ms", "ms", True, image_rows.first_image),
    Row("second-question", "the next one about it", "first_ms", "ms", True, image_rows.second_question),
    Row("image-8", "one picture for eight clients", "last_first_s", "s", True, image_rows.eight_clients),
    Row("repeated-text", "editing repeats what is there", "tokens_per_s", "tok/s", False, load_rows.repeated),
    Row(
        "free-text", "what repeats nothing is not slower", "tokens_per_s", "tok/s", False, load_rows.free_text
    ),
    Row("mtp", "a model's own head saves steps", "tokens_per_s", "tok/s", False, load_rows.own_head),
    Row("placement", "a model larger than one device", "between_ms", "ms", True, device_rows.placement),
    Row("streams-32", "many small requests at once", "tokens_per_s", "tok/s", False, load_rows.streams_32),
    Row(
        "long-prefill",
        "one's answer goes on while another reads a book",
        "kept",
        "x",
        False,
        load_rows.long_prefill,
        needs_ctx=18432,
    ),
    Row("clients-64", "nothing fails when all come at once", "failed", "", True, load_rows.clients_64),
    Row(
        "context-curve",
        "long chats",
        "decode_16k_ms",
        "ms",
        True,
        load_rows.context_curve,
        needs_ctx=16640,
    ),
    Row("stream-curve", "more clients", "streams_32", "tok/s", False, load_rows.stream_curve),
    Row("footprint", "what it costs when nobody uses it", "front_mb", "MB", True, footprint),
)
