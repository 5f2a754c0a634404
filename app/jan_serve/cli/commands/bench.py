"""`jan-serve bench`: how fast a model reads and writes here, beside the last run and another server."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from jan_serve import __version__
from jan_serve.cli.arguments import ConfigOption, JsonOption, UrlOption, model_argument, option
from jan_serve.cli.client.loading import ProgressBar, ready_model
from jan_serve.cli.client.own_server import any_server
from jan_serve.cli.client.server_client import ServerClient
from jan_serve.cli.errors import CommandError
from jan_serve.cli.options import load_settings
from jan_serve.cli.output import output, size_text
from jan_serve.config import server_address
from jan_serve.core.measurements import FirstToken, Speed
from jan_serve.store.measurements import speeds
from jan_serve.store.model_advice import memory_bandwidth

_LENGTHS: Final = (1000, 8000, 32_000)
"""Tokens of prompts, as far as they fit into the context."""
_PROMPT: Final = 16
"""Words before what is written."""
_ANSWER: Final = 128
_ROOM: Final = 128
"""Tokens that a prompt leaves free."""
_RUNS: Final = 3
_WORDS: Final = (
    "time year people way day man thing woman life child world school state family student group".split()
)


def bench(
    model: Annotated[
        str | None, model_argument("Name of a model; default: the default model.", "[MODEL]")
    ] = None,
    clients: Annotated[int, option("--clients", "Clients that ask at the same time.", min=1, max=64)] = 8,
    against: Annotated[
        str | None, option("--against URL", "Measure another OpenAI server with the same model, too.")
    ] = None,
    url: UrlOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure how fast a model reads and writes here. Starts a server if none runs.

    Shows the time to the first token of prompts that no cache has, tokens a second for one client and several, and how
    much of the memory's bandwidth one client uses. The last run of the model on this machine stands beside it.
    """
    loaded = load_settings(config_file=config)
    with any_server(loaded, url, model=model) as client:
        default = None if model is not None else str(client.get("/props", patient=True)["model_alias"])
        name = ready_model(client, model or default or "")
        models: list[dict[str, Any]] = client.get("/models")["data"]
        found = next(each for each in models if each["id"] == name)
        n_ctx = int(found.get("context_length") or _LENGTHS[0] + _ROOM)
        here = _measured(client, name, n_ctx, clients, found)
    beside: list[tuple[str, Speed]] = []
    records = speeds(loaded.settings.data_dir)
    last = records.get(name)
    if last is not None:
        beside.append((time.strftime("%Y-%m-%d", time.localtime(last.at)), last))
    if against is not None:
        with ServerClient(server_address(loaded, against)) as other:
            beside.append((against, _measured(other, name, n_ctx, clients)))
    try:
        records.put(name, here)
    except OSError as error:
        output.warning(f"the result cannot be recorded in {loaded.settings.data_dir}: {error.strerror}")
    if as_json:
        output.json(msgspec.to_builtins({"here": here, **dict(beside)}))
        return
    _print(here, beside)


def _print(here: Speed, beside: Sequence[tuple[str, Speed]]) -> None:
    speeds = [here, *(speed for _, speed in beside)]
    rows: list[tuple[str, Callable[[Speed], str]]] = []
    for index, first in enumerate(here.first):
        rows.append((f"first token, {first.tokens} tokens", lambda each, at=index: _first(each, at)))
    for count in here.writes:
        who = "1 client" if count == 1 else f"{count} clients"
        rows.append(
            (
                f"writes, {who}",
                lambda each, at=count: f"{each.writes[at]:.1f} tokens/s" if at in each.writes else "",
            )
        )
    rows.append(("memory", lambda each: size_text(each.memory) if each.memory else ""))
    rows.append(
        ("share of the bandwidth", lambda each: f"{each.bandwidth_share:.0%}" if each.bandwidth_share else "")
    )
    table = [(label, *(show(speed) for speed in speeds)) for label, show in rows]
    output.table(("", "now", *(label for label, _ in beside)), table)
    if here.bandwidth:
        output.note(f"The memory gives {size_text(int(here.bandwidth))} a second to all cores together.")


def _first(speed: Speed, index: int) -> str:
    if index >= len(speed.first):
        return ""
    first = speed.first[index]
    return f"{first.seconds:.2f} s, {first.per_second:.0f}/s"


def _measured(
    client: ServerClient, name: str, n_ctx: int, clients: int, facts: Mapping[str, Any] | None = None
) -> Speed:
    """facts: of a model on this machine; None for another server."""
    memory: Mapping[str, Any] = (facts or {}).get("memory") or {}
    read: int | None = memory.get("read_per_token") if facts and facts.get("device") == "CPU" else None
    lengths = [length for length in _LENGTHS if length + _ROOM <= n_ctx] or [n_ctx - _ROOM]
    bar = ProgressBar(name, "Measuring {task.description}")
    steps = len(lengths) + 2 * _RUNS
    try:
        words = _Words(client, name)
        first: list[FirstToken] = []
        for done, length in enumerate(lengths):
            bar.update(done, steps)
            first.append(words.read(length))
        writes: dict[int, float] = {}
        for at, count in enumerate(dict.fromkeys((1, clients))):
            rates: list[float] = []
            for run in range(_RUNS):
                bar.update(len(lengths) + at * _RUNS + run, steps)
                rates.append(words.write(count))
            writes[count] = median(rates)
    finally:
        bar.close()
    bandwidth = memory_bandwidth() if facts is not None else None
    return Speed(
        model=name,
        version=__version__ if facts is not None else client.url,
        at=time.time(),
        first=tuple(first),
        writes=writes,
        memory=memory.get("resident"),
        bandwidth=bandwidth,
        bandwidth_share=read * writes[1] / bandwidth if read and bandwidth else None,
    )


class _Answer(NamedTuple):
    """When it was asked, and when its first and its last token came."""

    began: float
    first: float
    end: float
    prompt_tokens: int
    tokens: int


class _Words:
    """Prompts of random words, which no cache has, for one model of a server."""

    def __init__(self, client: ServerClient, model: str) -> None:
        self._client = client
        self._model = model
        self._draw = random.Random(time.time_ns())
        self._per_word = 1.0
        shortest = self._answer(_PROMPT, 1)
        self._shortest_s = shortest.end - shortest.began
        self._per_word = self._answer(512, 1).prompt_tokens / 512

    def read(self, tokens: int) -> FirstToken:
        answer = self._answer(int(tokens / self._per_word), 1)
        seconds = answer.first - answer.began
        return FirstToken(answer.prompt_tokens, seconds, answer.prompt_tokens / seconds)

    def write(self, clients: int) -> float:
        """Tokens a second of all clients together, from the first to the last one.

        A first token that is read late, with others behind it, came after the time of the shortest answer.
        """

        def ask(_: int) -> _Answer:
            return self._answer(_PROMPT, _ANSWER)

        with ThreadPoolExecutor(clients) as pool:
            answers = list(pool.map(ask, range(clients)))
        first = min(min(answer.first, answer.began + self._shortest_s) for answer in answers)
        seconds = max(answer.end for answer in answers) - first
        return sum(answer.tokens - 1 for answer in answers) / max(seconds, 1e-9)

    def _answer(self, words: int, tokens: int) -> _Answer:
        """Raises CommandError."""
        prompt = " ".join(self._draw.choices(_WORDS, k=max(1, words)))
        body = {
            "model": self._model,
            "prompt": prompt,
            "max_tokens": tokens,
            "temperature": 1,  # a greedy text may repeat itself, which is quicker to guess than to write
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        began = time.perf_counter()
        first: float | None = None
        usage: dict[str, Any] = {}
        timings: dict[str, Any] = {}
        for event in self._client.events("/v1/completions", body):
            if event.get("choices") and first is None:
                first = time.perf_counter()
            usage, timings = event.get("usage") or usage, event.get("timings") or timings
        end = time.perf_counter()
        if first is None or not usage.get("prompt_tokens"):
            raise CommandError(f"the server at {self._client.url} does not say how many tokens it reads.")
        if "predicted_ms" in timings:
            # Tokens without text, or text that may be a stop string, come later than they are written.
            first = max(began, min(first, end - timings["predicted_ms"] / 1000))
        return _Answer(began, first, end, usage["prompt_tokens"], usage["completion_tokens"])
