"""`jan-serve certify`: what a model can do for agents here, by tasks that are made from a seed and scored exactly."""

from __future__ import annotations

import base64
import json
import random
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Final, cast

import msgspec

from jan_serve import __version__
from jan_serve.cli.client.loading import ProgressBar, ready_model
from jan_serve.cli.client.own_server import any_server
from jan_serve.cli.client.server_client import ServerClient
from jan_serve.cli.commands.completion import model_argument
from jan_serve.cli.errors import CommandError
from jan_serve.cli.options import ConfigOption, JsonOption, UrlOption, load_settings
from jan_serve.cli.output import Output
from jan_serve.core.measurements.certificate import Certificate, Mark, verdicts
from jan_serve.store.measurements import certificates

_CASES: Final = 4
"""Of each task."""
_AGENT: Final = 20_000
"""Tokens of an agent's first prompt."""
_NEEDLES: Final = (1000, 4000, 16_000, 64_000)
_ROOM: Final = 512
_SEED: Final = 20_261_127
_NAMES: Final = "river stone cloud candle garden window ladder basket feather anchor copper meadow".split()
_COLOURS: Final = {
    "red": (220, 20, 20),
    "green": (20, 160, 40),
    "blue": (20, 40, 220),
    "yellow": (240, 220, 20),
}


def certify(
    model: Annotated[str, model_argument("Name of a model.")],
    url: UrlOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Try what agents ask of a model: schemas, tools, turns, long prompts. Starts a server if none runs.

    The tasks are made from a seed and scored exactly, by no other model. `jan-serve show` has the result.
    """
    loaded = load_settings(config_file=config)
    output = Output()
    with any_server(loaded, url, output, model=model) as client:
        name = ready_model(client, model, output)
        found = Exam(client, name, output).certificate()
    try:
        certificates(loaded.settings.data_dir).put(name, found)
    except OSError as error:
        output.warning(f"the result cannot be recorded in {loaded.settings.data_dir}: {error.strerror}")
    if as_json:
        output.json({**msgspec.to_builtins(found), "verdicts": verdicts(found)})
        return
    output.table(
        ("task", "right", ""), [(mark.task, f"{mark.right} of {mark.of}", mark.note) for mark in found.marks]
    )
    output.table(("enough for", ""), list(verdicts(found).items()))


class Exam:
    """Each task yields whether a case was answered rightly."""

    def __init__(self, client: ServerClient, model: str, output: Output) -> None:
        self._client, self._model, self._output = client, model, output
        self._draw = random.Random(_SEED)
        models: list[dict[str, Any]] = client.get("/models")["data"]
        facts = next(each for each in models if each["id"] == model)
        self._n_ctx = int(facts["context_length"])
        self._sees = "image" in facts["architecture"]["input_modalities"]

    def certificate(self) -> Certificate:
        tasks: dict[str, Callable[[], Iterator[bool]]] = {
            "schema": self._schema,
            "schema after a thought": self._thought,
            "1 tool": lambda: self._tools(1),
            "10 tools": lambda: self._tools(10),
            "50 tools": lambda: self._tools(50),
            "turns": self._turns,
            "infill": self._infill,
        }
        if self._sees:
            tasks["picture"] = self._pictures
        lengths = [length for length in _NEEDLES if length + _ROOM <= self._n_ctx]
        tasks["needle"] = lambda: self._needles(lengths or [self._n_ctx // 2])
        marks: list[Mark] = []
        bar = ProgressBar(self._output, self._model, "Certifying {task.description}")
        try:
            for done, (task, cases) in enumerate(tasks.items()):
                bar.update(done, len(tasks) + 1)
                marks += self._mark(task, cases)
            bar.update(len(tasks), len(tasks) + 1)
            cold, warm = self._first_tokens()
        finally:
            bar.close()
        return Certificate(
            model=self._model,
            version=__version__,
            at=time.time(),
            n_ctx=self._n_ctx,
            marks=tuple(marks),
            prompt=_AGENT,
            cold_s=cold,
            warm_s=warm,
        )

    def _mark(self, task: str, cases: Callable[[], Iterator[bool]]) -> list[Mark]:
        """Nothing for a task that the model cannot be asked."""
        began = time.perf_counter()
        try:
            results = list(cases())
        except CommandError as error:
            self._client.get("/health")  # raises if it is the server that does not answer
            self._output.note(f"{task}: {error.message}")
            return []
        return [
            Mark(
                task, sum(results), len(results), f"{(time.perf_counter() - began) / len(results):.1f} s each"
            )
        ]

    def _chat(self, messages: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
        body = {"model": self._model, "messages": messages, "temperature": 0, "max_tokens": 256, **fields}
        choice: dict[str, Any] = self._client.post("/v1/chat/completions", body)["choices"][0]
        return choice

    def _person(self) -> tuple[dict[str, Any], str]:
        """A record, and a sentence that says it."""
        record = {
            "name": self._draw.choice(_NAMES).title(),
            "age": self._draw.randint(20, 90),
            "city": self._draw.choice(_NAMES).title(),
        }
        return record, f"{record['name']}, who is {record['age']} years old, lives in {record['city']}."

    def _schema(self, **fields: Any) -> Iterator[bool]:
        """The record comes back from the sentence, in the form of a schema."""
        properties = {"name": {"type": "string"}, "age": {"type": "integer"}, "city": {"type": "string"}}
        schema = {
            "type": "object",
            "properties": properties,
            "required": [*properties],
            "additionalProperties": False,
        }
        form = {"type": "json_schema", "json_schema": {"name": "person", "schema": schema, "strict": True}}
        for _ in range(_CASES):
            record, sentence = self._person()
            messages = [{"role": "user", "content": f"Extract the person: {sentence}"}]
            answer = self._chat(messages, response_format=form, **fields)
            yield _json(answer["message"].get("content")) == record

    def _thought(self) -> Iterator[bool]:
        yield from self._schema(chat_template_kwargs={"enable_thinking": True}, max_tokens=1024)

    def _tools(self, count: int) -> Iterator[bool]:
        """The right one of so many tools is called with the values that were named."""
        names = [f"set_{first}_{second}" for first in _NAMES for second in _NAMES][:: 144 // count][:count]
        tools = [
            {
                "type": "function",
                "function": {
                    "name": name,
                    "description": f"Sets the {name[4:].replace('_', ' ')} to a number.",
                    "parameters": {
                        "type": "object",
                        "properties": {"value": {"type": "integer"}},
                        "required": ["value"],
                    },
                },
            }
            for name in names
        ]
        for _ in range(_CASES):
            name, value = self._draw.choice(names), self._draw.randint(10, 999)
            text = f"Set the {name[4:].replace('_', ' ')} to {value}."
            answer = self._chat([{"role": "user", "content": text}], tools=tools)
            calls = cast(list[dict[str, Any]], answer["message"].get("tool_calls") or [])
            made = [(call["function"]["name"], _json(call["function"]["arguments"])) for call in calls]
            yield made == [(name, {"value": value})]

    def _turns(self) -> Iterator[bool]:
        """What was said four turns ago is still known."""
        for _ in range(_CASES):
            record, sentence = self._person()
            messages = [
                {"role": "user", "content": f"Remember: {sentence}"},
                {"role": "assistant", "content": "I will remember it."},
                {"role": "user", "content": "Say yes."},
                {"role": "assistant", "content": "Yes."},
                {"role": "user", "content": f"How old is {record['name']}? Answer with the number only."},
            ]
            answer = self._chat(messages, max_tokens=512)["message"].get("content") or ""
            yield str(record["age"]) in answer

    def _infill(self) -> Iterator[bool]:
        """The gap in a line of code is filled so that the code means what its name says."""
        for _ in range(_CASES):
            first, second = self._draw.sample(_NAMES, 2)
            body = {
                "model": self._model,
                "prompt": f"def add({first}, {second}):\n    return ",
                "suffix": "\n\nprint(add(1, 2))\n",
                "max_tokens": 16,
                "temperature": 0,
            }
            text: str = self._client.post("/v1/completions", body)["choices"][0]["text"]
            yield text.strip().splitlines()[:1] == [f"{first} + {second}"]

    def _pictures(self) -> Iterator[bool]:
        for name, colour in _COLOURS.items():
            url = f"data:image/png;base64,{base64.b64encode(_picture(colour)).decode()}"
            question = {"type": "text", "text": f"Which colour is it: {', '.join(_COLOURS)}? One word."}
            content = [{"type": "image_url", "image_url": {"url": url}}, question]
            answer = (
                self._chat([{"role": "user", "content": content}], max_tokens=512)["message"].get("content")
                or ""
            )
            yield name in answer.lower()

    def _needles(self, lengths: list[int]) -> Iterator[bool]:
        """A number in the middle of a long text is found."""
        for length in lengths:
            number = self._draw.randint(10_000, 99_999)
            words = self._words(length - 200)
            words.insert(len(words) // 2, f"\nThe number of the anchor is {number}.\n")
            text = f"{' '.join(words)}\n\nWhat is the number of the anchor? Answer with the number only."
            answer = (
                self._chat([{"role": "user", "content": text}], max_tokens=64)["message"].get("content") or ""
            )
            yield str(number) in answer

    def _words(self, tokens: int) -> list[str]:
        """Words that have about so many tokens, and never more."""
        sample = self._draw.choices(_NAMES, k=400)
        body = {"model": self._model, "input": " ".join(sample)}
        per_word = len(self._client.post("/extras/tokenize", body)["tokens"]) / len(sample)
        return self._draw.choices(_NAMES, k=max(1, int(tokens * 0.97 / per_word)))

    def _first_tokens(self) -> tuple[float | None, float | None]:
        """Seconds to the first token of an agent's prompt: new, then with one line more at its end."""
        if self._n_ctx < _AGENT + _ROOM:
            return None, None
        system = {"role": "system", "content": f"{time.time_ns()} {' '.join(self._words(_AGENT))}"}
        cold, warm = (
            self._timed([system, {"role": "user", "content": text}]) for text in ("Say yes.", "Say no.")
        )
        return cold, warm

    def _timed(self, messages: list[dict[str, Any]]) -> float:
        began = time.perf_counter()
        self._chat(messages, max_tokens=1)
        return time.perf_counter() - began


def _picture(colour: tuple[int, int, int], side: int = 128) -> bytes:
    """A PNG file of one colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + bytes(colour) * side) * side
    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def _json(text: str | None) -> object:
    try:
        return json.loads(text or "")
    except ValueError:
        return None
