"""`jan-serve certify`: what a model can do for agents here, by tasks that are made from a seed and scored exactly."""

from __future__ import annotations

import base64
import json
import random
import re
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated, Any, Final, cast

import msgspec

from jan_serve import __version__
from jan_serve.cli.arguments import ConfigOption, JsonOption, UrlOption, model_argument
from jan_serve.cli.client.loading import ProgressBar, ready_model
from jan_serve.cli.client.own_server import any_server
from jan_serve.cli.client.server_client import ServerClient
from jan_serve.cli.errors import CommandError
from jan_serve.cli.options import load_settings
from jan_serve.cli.output import output
from jan_serve.core.measurements import Certificate, Mark, verdicts
from jan_serve.store.measurements import certificates

_CASES: Final = 4
"""Cases of each task."""
_AGENT: Final = 20_000
"""Tokens of an agent's first prompt."""
_TOOLS: Final = (1, 10, 50)
_NEEDLES: Final = (4000, 16_000, 64_000)
"""Tokens around the number that is looked for, and as many as the context holds."""
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
    with any_server(loaded, url, model=model) as client:
        name = ready_model(client, model)
        found = Exam(client, name).certificate()
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
    for verdict in verdicts(found).values():
        output.data(verdict)


Case = dict[str, bool]
"""What one case shows: whether it is right, by task."""


class Exam:
    """Each task yields its cases. An answer with more than was asked for is not right: noise would be, now and then."""

    def __init__(self, client: ServerClient, model: str) -> None:
        self._client, self._model = client, model
        self._draw = random.Random(_SEED)
        models: list[dict[str, Any]] = client.get("/models")["data"]
        facts = next(each for each in models if each["id"] == model)
        self._n_ctx = int(facts["context_length"])
        self._sees = "image" in facts["architecture"]["input_modalities"]

    def certificate(self) -> Certificate:
        end = self._n_ctx - _ROOM
        tasks: list[tuple[str, Callable[[], Iterator[Case]], int]] = [
            ("schema", self._schema, 0),
            ("schema after a thought", self._thought, 0),
            *((f"{n} tool{'s' * (n > 1)}", partial(self._tools, n), 0) for n in _TOOLS),
            ("forced call", self._forced_calls, 0),
            ("tool result", self._tool_results, 0),
            ("turns", self._turns, 0),
            ("infill", self._infill, 0),
            *([("picture", self._pictures, 0)] if self._sees else []),
            *(
                ("needle", partial(self._needle, length), length)
                for length in (*(each for each in _NEEDLES if each < end), end)
                if length > 0
            ),
        ]
        marks: list[Mark] = []
        bar = ProgressBar(self._model, "Certifying {task.description}")
        try:
            for done, (task, cases, tokens) in enumerate(tasks):
                bar.update(done, len(tasks) + 1)
                # Of its own for each task: what one model cannot be asked does not change the others.
                self._draw = random.Random(f"{_SEED} {task} {tokens}")
                marks += self._marks(task, cases, tokens)
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

    def _marks(self, name: str, cases: Callable[[], Iterator[Case]], tokens: int) -> list[Mark]:
        """Nothing for a task that the model cannot be asked."""
        began = time.perf_counter()
        try:
            results = list(cases())
        except CommandError as error:
            self._client.get("/health")  # raises if it is the server that does not answer
            output.note(f"{name}: {error.message}")
            return []
        note = f"{(time.perf_counter() - began) / max(1, len(results)):.1f} s each"
        if tokens:
            note += f", {tokens:,} tokens"
        right: dict[str, list[bool]] = {}
        for case in results:
            for task, is_right in case.items():
                right.setdefault(task, []).append(is_right)
        return [Mark(task, sum(found), len(found), note, tokens) for task, found in right.items()]

    def _chat(self, messages: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
        """The message of the answer, without a thought unless the fields ask for one."""
        body = {
            "model": self._model,
            "messages": messages,
            "temperature": 0,
            "max_tokens": 256,
            "reasoning_effort": "none",
            **fields,
        }
        message: dict[str, Any] = self._client.post("/v1/chat/completions", body)["choices"][0]["message"]
        return message

    def _person(self) -> tuple[dict[str, Any], str]:
        """A record, and a sentence that says it."""
        name, city = self._draw.sample(_NAMES, 2)
        record = {"name": name.title(), "age": self._draw.randint(20, 90), "city": city.title()}
        return record, f"{record['name']}, who is {record['age']} years old, lives in {record['city']}."

    def _extracted(self, record: dict[str, Any], sentence: str, **fields: Any) -> dict[str, Any]:
        text = {"type": "string", "maxLength": 24}
        properties = {"name": text, "age": {"type": "integer", "minimum": 0, "maximum": 150}, "city": text}
        schema = {
            "type": "object",
            "properties": properties,
            "required": [*record],
            "additionalProperties": False,
        }
        form = {"type": "json_schema", "json_schema": {"name": "person", "schema": schema, "strict": True}}
        messages = [
            {"role": "user", "content": f"Extract the name, age and city of the person as JSON: {sentence}"}
        ]
        return self._chat(messages, response_format=form, **fields)

    def _schema(self) -> Iterator[Case]:
        """The record comes back from the sentence, in the form of a schema."""
        for _ in range(_CASES):
            record, sentence = self._person()
            found = _json(self._extracted(record, sentence).get("content"))
            yield {"schema kept": _has_form(found, record), "schema right": found == record}

    def _thought(self) -> Iterator[Case]:
        """The same after a thought, until an answer has none."""
        for _ in range(_CASES):
            record, sentence = self._person()
            message = self._extracted(record, sentence, reasoning_effort="low", max_tokens=1024)
            if not message.get("reasoning_content"):
                return
            yield {"schema after a thought": _json(message.get("content")) == record}

    def _numbered_tools(self, count: int) -> list[str]:
        pairs = [(first, second) for first in _NAMES for second in _NAMES if first != second]
        return [f"set_{first}_{second}" for first, second in self._draw.sample(pairs, count)]

    def _tools(self, count: int) -> Iterator[Case]:
        """The right one of so many tools is called with the value that was named."""
        names = self._numbered_tools(count)
        for _ in range(_CASES):
            name, value = self._draw.choice(names), self._draw.randint(10, 999)
            text = f"Set the {_words_of(name)} to {value}."
            message = self._chat([{"role": "user", "content": text}], tools=_tools(names))
            yield {f"{count} tool{'s' * (count > 1)}": _calls(message) == [(name, {"value": value})]}

    def _forced_calls(self) -> Iterator[Case]:
        """A call that must come has the name of a tool and the arguments of its schema."""
        names = self._numbered_tools(10)
        for _ in range(_CASES):
            message = self._chat(
                [{"role": "user", "content": "Set something."}], tools=_tools(names), tool_choice="required"
            )
            calls = _calls(message)
            yield {
                "forced call": len(calls) >= 1
                and all(name in names and _has_form(arguments, {"value": 0}) for name, arguments in calls)
            }

    def _tool_results(self) -> Iterator[Case]:
        """The answer repeats what a tool said."""
        names = self._numbered_tools(2)
        for _ in range(_CASES):
            name, value = self._draw.choice(names), self._draw.randint(100, 999)
            call = {
                "id": "call_1",
                "type": "function",
                "function": {"name": name, "arguments": '{"value": 1}'},
            }
            messages = [
                {
                    "role": "user",
                    "content": f"Set the {_words_of(name)} to 1. Then tell me what it was before.",
                },
                {"role": "assistant", "content": "", "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "call_1", "content": json.dumps({"before": value})},
            ]
            answer = self._chat(messages, tools=_tools(names)).get("content")
            yield {"tool result": _only_number(answer, besides=("1",)) == str(value)}

    def _turns(self) -> Iterator[Case]:
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
            yield {"turns": _only_number(self._chat(messages).get("content")) == str(record["age"])}

    def _infill(self) -> Iterator[Case]:
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
            line = "".join(text.strip().splitlines()[:1]).replace(" ", "").strip("()")
            yield {"infill": line in (f"{first}+{second}", f"{second}+{first}")}

    def _pictures(self) -> Iterator[Case]:
        for name, colour in _COLOURS.items():
            url = f"data:image/png;base64,{base64.b64encode(_picture(colour)).decode()}"
            question = {"type": "text", "text": f"What colour is the circle: {', '.join(_COLOURS)}?"}
            content = [{"type": "image_url", "image_url": {"url": url}}, question]
            answer = self._chat([{"role": "user", "content": content}]).get("content") or ""
            yield {"picture": _COLOURS.keys() & set(re.findall("[a-z]+", answer.lower())) == {name}}

    def _needle(self, length: int) -> Iterator[Case]:
        """A number in the middle of a long text is found."""
        number = self._draw.randint(10_000, 99_999)
        words = self._words(max(1, length - 200))
        words.insert(len(words) // 2, f"\nThe number of the anchor is {number}.\n")
        text = f"{' '.join(words)}\n\nWhat is the number of the anchor? Answer with the number only."
        answer = self._chat([{"role": "user", "content": text}]).get("content")
        yield {"needle": _only_number(answer) == str(number)}

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
        times = [time.perf_counter()]
        for text in ("Say yes.", "Say no."):
            self._chat([system, {"role": "user", "content": text}], max_tokens=1)
            times.append(time.perf_counter())
        return times[1] - times[0], times[2] - times[1]


def _words_of(tool: str) -> str:
    return tool[4:].replace("_", " ")


def _tools(names: list[str]) -> list[dict[str, Any]]:
    parameters = {
        "type": "object",
        "properties": {"value": {"type": "integer", "minimum": 0, "maximum": 9999}},
        "required": ["value"],
        "additionalProperties": False,
    }
    return [
        {
            "type": "function",
            "function": {
                "name": name,
                "description": f"Sets the {_words_of(name)} to a number.",
                "parameters": parameters,
            },
        }
        for name in names
    ]


def _calls(message: dict[str, Any]) -> list[tuple[str, object]]:
    calls = cast(list[dict[str, Any]], message.get("tool_calls") or [])
    return [(call["function"]["name"], _json(call["function"]["arguments"])) for call in calls]


def _has_form(found: object, of: dict[str, Any]) -> bool:
    """Whether it is an object with the same names, and values of the same types."""
    if not isinstance(found, dict):
        return False
    values = cast(dict[str, object], found)
    return values.keys() == of.keys() and all(type(values[name]) is type(of[name]) for name in of)


def _only_number(text: str | None, besides: tuple[str, ...] = ()) -> str | None:
    """The number that a text has, if it has one; `besides` may stand there too."""
    found = set(re.findall(r"\d+", text or "")) - set(besides)
    return found.pop() if len(found) == 1 else None


def _picture(colour: tuple[int, int, int], side: int = 128) -> bytes:
    """A PNG file with a circle of this colour on white."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    middle, radius, white = (side - 1) / 2, side / 3, bytes((255, 255, 255))
    rows = b"".join(
        b"\0"
        + b"".join(
            bytes(colour) if (x - middle) ** 2 + (y - middle) ** 2 < radius**2 else white for x in range(side)
        )
        for y in range(side)
    )
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
