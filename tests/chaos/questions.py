"""What the clients ask: valid requests of every dialect, and how each dialect tells an answer from an error."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from tests.support.media.pictures import BLUE, RED, data_url, picture

Json = dict[str, Any]

WRITER, EMBEDDER, SEER = "writer", "embedder", "eyes"
"""Models of the folder; the default one, which nobody names, is the built-in one."""
CANARY: Final = "zebra-quartz"
"""In every prompt: no log line may hold it."""


@dataclass(frozen=True, slots=True)
class Told:
    """What a body says so far. text: of the answer. ended: the dialect's sign of success came, as the last thing."""

    text: str
    ended: bool
    errors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """A request. model: the folder's model that answers, "" the built-in one. told: reads a 200; may raise ValueError.

    error: the message of a refusal in its dialect; raises KeyError, TypeError, ValueError where it is none.
    """

    name: str
    path: str
    body: Json
    model: str
    told: Callable[[bytes], Told]
    error: Callable[[bytes], str]

    @property
    def key(self) -> str:
        return f"{self.name} {json.dumps(self.body, sort_keys=True)}"

    @property
    def is_stream(self) -> bool:
        return bool(self.body.get("stream")) or self.name.startswith(("ollama chat", "tgi stream"))


def _said(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"not a message: {value!r}")
    return value


def openai_error(body: bytes) -> str:
    error = json.loads(body)["error"]
    if {"message", "type", "param", "code"} - set(error):
        raise ValueError(f"members are missing: {sorted(error)}")
    return _said(error["code"]) and f"{error['code']}: {_said(error['message'])}"


def anthropic_error(body: bytes) -> str:
    value = json.loads(body)
    if value["type"] != "error":
        raise ValueError("no error")
    return f"{_said(value['error']['type'])}: {_said(value['error']['message'])}"


def ollama_error(body: bytes) -> str:
    return _said(json.loads(body)["error"])


def tgi_error(body: bytes) -> str:
    value = json.loads(body)
    return f"{_said(value['error_type'])}: {_said(value['error'])}"


def lmdeploy_error(body: bytes) -> str:
    value = json.loads(body)
    if value["object"] != "error":
        raise ValueError("no error")
    return f"{value['code']}: {_said(value['message'])}"


def whole(text_of: Callable[[Json], Any]) -> Callable[[bytes], Told]:
    """Reads a JSON body. text_of: what has to be the same each time."""
    return lambda body: Told(json.dumps(text_of(json.loads(body))), ended=True)


def _payloads(body: bytes) -> list[str]:
    """Data of the events of a stream that may be cut."""
    blocks = body.decode().split("\n\n")[:-1]
    return [line[6:] for block in blocks for line in block.split("\n") if line.startswith("data: ")]


def events(
    text_of: Callable[[Json], str], is_end: Callable[[str], bool], *, ends_after_error: bool = False
) -> Callable[[bytes], Told]:
    """Reads an event stream. text_of: what one event adds. is_end: whether a payload is the sign of success.

    ends_after_error: in this dialect the sign ends each stream, so that an error may stand before it.
    """

    def told(body: bytes) -> Told:
        payloads = _payloads(body)
        values = [json.loads(payload) for payload in payloads if payload != "[DONE]"]
        failed = [json.dumps(value) for value in values if _is_error(value)]
        ended = bool(payloads) and is_end(payloads[-1]) and not (failed and ends_after_error)
        return Told("".join(map(text_of, values)), ended, tuple(failed))

    return told


def _is_error(value: Json) -> bool:
    return (
        (value.get("error") is not None and "output" not in value)
        or value.get("type") == "response.failed"
        or value.get("object") == "error"
    )


def _lines(body: bytes) -> Told:
    """Ollama's stream of lines."""
    values = [json.loads(line) for line in body.decode().split("\n")[:-1] if line]
    failed = tuple(value["error"] for value in values if "error" in value)
    text = "".join(
        value["message"].get("thinking", "") + value["message"]["content"]
        for value in values
        if "message" in value
    )
    return Told(text, bool(values) and values[-1].get("done") is True, failed)


def _chat_delta(value: Json) -> str:
    text = ""
    for choice in value.get("choices") or ():
        delta = choice["delta"]
        text += delta.get("content") or ""
        for call in delta.get("tool_calls") or ():
            text += call["function"].get("name") or ""
            text += call["function"].get("arguments") or ""
    return text


def _completion_delta(value: Json) -> str:
    return "".join(choice["text"] for choice in value.get("choices") or ())


def _message_delta(value: Json) -> str:
    delta = value.get("delta", {})
    return delta.get("text") or delta.get("thinking") or delta.get("partial_json") or ""


def _done(payload: str) -> bool:
    return payload == "[DONE]"


def _message_of_chat(value: Json) -> Any:
    message = value["choices"][0]["message"]
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    return message.get("content"), calls, value["choices"][0]["finish_reason"]


def _vectors(rows: list[list[float]]) -> Any:
    """Rounded: the order of additions may change with the batch."""
    return [[round(number, 3) + 0.0 for number in row] for row in rows]


_TOOL: Final = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["Paris", "Oslo", "Lima"]}, "days": {"enum": [1, 2, 3]}},
            "required": ["city", "days"],
            "additionalProperties": False,
        },
    },
}
_SCHEMA: Final = {
    "type": "object",
    "properties": {
        "colour": {"enum": ["red", "green"]},
        "count": {"type": "integer", "maximum": 9, "minimum": 0},
    },
    "required": ["colour", "count"],
    "additionalProperties": False,
}
_GREEDY: Final[Json] = {"temperature": 0, "repeat_penalty": 1.0}
_WORDS: Final = ("the sea", "a small house", "seven birds")


def _chat(words: str, **more: Any) -> Json:
    text = f"{CANARY}: write about {words}."
    return {
        "model": WRITER,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": 40,
        **_GREEDY,
        **more,
    }


def _writing(words: str) -> Iterator[Question]:
    """The dialects over the model that writes."""
    chat = _chat(words)
    plain = {"model": WRITER, "prompt": f"{CANARY} {words}", "max_tokens": 60, **_GREEDY}
    openai, chats = openai_error, "/v1/chat/completions"
    form = {"type": "json_schema", "json_schema": {"name": "thing", "schema": _SCHEMA}}
    tools = {"tools": [_TOOL], "tool_choice": "required"}
    chat_events = events(_chat_delta, _done)
    yield Question("openai chat", chats, chat, WRITER, whole(_message_of_chat), openai)
    yield Question("openai stream", chats, {**chat, "stream": True}, WRITER, chat_events, openai)
    yield Question(
        "openai schema", chats, _chat(words, response_format=form), WRITER, whole(_message_of_chat), openai
    )
    yield Question("openai tools", chats, _chat(words, stream=True, **tools), WRITER, chat_events, openai)
    completions = events(_completion_delta, _done)
    yield Question(
        "openai completion", "/v1/completions", {**plain, "stream": True}, WRITER, completions, openai
    )
    responses: Json = {
        "model": WRITER,
        "input": f"{CANARY} {words}",
        "max_output_tokens": 40,
        "temperature": 0,
    }
    written = events(
        lambda value: value["delta"] if value["type"] == "response.output_text.delta" else "",
        lambda payload: json.loads(payload)["type"] in ("response.completed", "response.incomplete"),
    )
    yield Question("responses", "/v1/responses", {**responses, "stream": True}, WRITER, written, openai)
    message: Json = {"model": WRITER, "messages": chat["messages"], "max_tokens": 40, "temperature": 0}
    replied = whole(lambda value: (value["content"], value["stop_reason"]))
    yield Question("anthropic", "/v1/messages", message, WRITER, replied, anthropic_error)
    spoken = events(_message_delta, lambda payload: json.loads(payload)["type"] == "message_stop")
    yield Question(
        "anthropic stream", "/v1/messages", {**message, "stream": True}, WRITER, spoken, anthropic_error
    )
    ollama: Json = {"model": WRITER, "options": {"temperature": 0, "num_predict": 40, "repeat_penalty": 1.0}}
    asked = {**ollama, "messages": chat["messages"], "think": False}
    yield Question("ollama chat", "/api/chat", asked, WRITER, _lines, ollama_error)
    once = {**ollama, "prompt": f"{CANARY} {words}", "stream": False, "raw": True}
    answered = whole(lambda value: (value["response"], value["done_reason"]))
    yield Question("ollama generate", "/api/generate", once, WRITER, answered, ollama_error)
    told = events(_chat_delta, _done, ends_after_error=True)
    yield Question(
        "lmdeploy stream", f"/lmdeploy{chats}", {**chat, "stream": True}, WRITER, told, lmdeploy_error
    )


def _native(words: str) -> Iterator[Question]:
    """Routes whose requests name no model."""
    generate: Json = {"inputs": f"{CANARY} {words}", "parameters": {"max_new_tokens": 40}}
    text = whole(lambda value: value["generated_text"])
    yield Question("tgi", "/tgi/generate", generate, "", text, tgi_error)
    tokens = events(
        lambda value: value["token"]["text"] if "token" in value else "",
        lambda payload: json.loads(payload).get("generated_text") is not None,
    )
    yield Question("tgi stream", "/tgi/generate_stream", generate, "", tokens, tgi_error)
    lmdeploy: Json = {"prompt": f"{CANARY} {words}", "max_tokens": 40, "temperature": 0, "stream": True}
    pieces = events(lambda value: value.get("text") or "", _done, ends_after_error=True)
    yield Question("lmdeploy", "/lmdeploy/generate", lmdeploy, "", pieces, lmdeploy_error)


def _others(words: str) -> Iterator[Question]:
    """Embeddings, documents, images."""
    text = f"{CANARY} {words}"
    rows = whole(lambda value: _vectors([row["embedding"] for row in value["data"]]))
    inputs: Json = {"model": EMBEDDER, "input": [text, "another text"]}
    yield Question("openai embeddings", "/v1/embeddings", inputs, EMBEDDER, rows, openai_error)
    bare = whole(lambda value: _vectors(value["embeddings"]))
    yield Question(
        "ollama embed", "/api/embed", {"model": EMBEDDER, "input": text}, EMBEDDER, bare, ollama_error
    )
    image = data_url(picture(40, 30, color=RED if words == _WORDS[0] else BLUE))
    content = [{"type": "image_url", "image_url": {"url": image}}, {"type": "text", "text": text}]
    seen = _chat(words, model=SEER, messages=[{"role": "user", "content": content}], stream=True)
    yield Question("image", "/v1/chat/completions", seen, SEER, events(_chat_delta, _done), openai_error)


QUESTIONS: Final[tuple[Question, ...]] = tuple(
    question for words in _WORDS for kind in (_writing, _native, _others) for question in kind(words)
)


def drawn(draws: random.Random) -> Question:
    """One of them."""
    return draws.choice(QUESTIONS)
