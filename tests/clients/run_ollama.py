"""Clients of Ollama's API against a server: `run_ollama.py CASE URL`, in the clients' environment."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Any

MODEL = "jan-tiny"
WEATHER = "What is the weather in Oslo?"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOL: Any = {
    "type": "function",
    "function": {"name": "get_weather", "description": "Get the weather in a city", "parameters": SCHEMA},
}
PROMPT = "<|im_start|>user\nHello!<|im_end|>\n<|im_start|>assistant\n"
EXTRACT = "My name is Omar, I am 37 years old and live in Oslo. Give name, age and city as JSON."


def _ollama(url: str) -> Any:
    import ollama

    return ollama.Client(host=url.removesuffix("/v1"))


def ollama_chat(url: str) -> None:
    import ollama
    from pydantic import BaseModel

    class Person(BaseModel):
        name: str
        age: int

    client = _ollama(url)
    hello: Any = [{"role": "user", "content": "Hello!"}]
    whole = client.chat(model=MODEL, messages=hello, options={"temperature": 0, "num_ctx": 512})
    assert whole.message.content
    assert whole.done_reason == "stop"
    assert (whole.eval_count, whole.prompt_eval_count) > (0, 0)
    parts = list(client.chat(model=MODEL, messages=hello, stream=True, options={"temperature": 0}))
    assert "".join(part.message.content for part in parts) == whole.message.content
    assert [part.done for part in parts[-2:]] == [False, True]

    def get_weather(city: str) -> str:
        """Get the weather in a city

        Args:
            city: The city
        """
        return city

    for tools in ([TOOL], [get_weather]):
        messages: list[Any] = [{"role": "user", "content": WEATHER}]
        asked: dict[str, Any] = {"model": MODEL, "tools": tools, "options": {"temperature": 0}}
        answer = client.chat(messages=messages, **asked)
        [call] = answer.message.tool_calls
        assert (call.function.name, dict(call.function.arguments)) == ("get_weather", {"city": "Oslo"})
        messages += [
            answer.message,
            {"role": "tool", "tool_name": "get_weather", "content": '{"sky": "rain"}'},
        ]
        assert client.chat(messages=messages, **asked).message.content
        streamed = [
            part.message.tool_calls or [] for part in client.chat(messages=messages[:1], stream=True, **asked)
        ]
        assert [dict(each.function.arguments) for calls in streamed for each in calls] == [{"city": "Oslo"}]
    person = client.chat(
        model=MODEL, messages=[{"role": "user", "content": EXTRACT}], format=Person.model_json_schema()
    )
    Person.model_validate_json(person.message.content)
    assert isinstance(json.loads(client.generate(MODEL, EXTRACT, format="json").response), dict)
    assert client.generate(MODEL, "Hello!", system="Be brief.", think=False).response
    sums: Any = [{"role": "user", "content": "What is 2+3?"}]
    thoughts = [client.chat(MODEL, sums, think=think).message for think in (True, False)]
    assert [bool(message.thinking) for message in thoughts] == [True, False]
    assert all("5" in message.content for message in thoughts)
    assert client.generate(MODEL, PROMPT, raw=True, options={"num_predict": 5}).done_reason == "length"
    for wrong, status, words in (
        ({"model": "absent:1b", "messages": hello}, 404, "model 'absent:1b' not found"),
        ({"model": MODEL, "messages": [{"role": "user", "content": "word " * 9_000}]}, 400, "longer than"),
    ):
        for stream in (False, True):
            try:
                answer = client.chat(stream=stream, **wrong)
                list(answer)
            except ollama.ResponseError as error:
                assert error.status_code == status, error
                assert words in error.error, error.error
            else:
                raise AssertionError(f"{words} is refused")

    async def asynchronous() -> str:
        stream = await ollama.AsyncClient(host=url.removesuffix("/v1")).chat(
            model=MODEL, messages=hello, stream=True
        )
        return "".join([part.message.content or "" async for part in stream])

    assert asyncio.run(asynchronous())


def ollama_models(url: str) -> None:
    import ollama

    client = _ollama(url)
    names = [model.model for model in client.list().models]
    assert f"{MODEL}:latest" in names
    shown = client.show(MODEL)
    assert {"completion", "tools"} <= set(shown.capabilities)
    assert shown.modelinfo["general.architecture"] == "llama"
    assert client.generate(MODEL).done_reason == "load"
    [loaded] = client.ps().models
    assert (loaded.model, loaded.context_length) == (
        f"{MODEL}:latest",
        client.show(MODEL).modelinfo["llama.context_length"],
    )
    vectors = client.embed(MODEL, ["a", "b"]).embeddings
    assert len(vectors) == 2
    assert abs(sum(value * value for value in vectors[0]) - 1) < 1e-3
    assert list(client.embeddings(MODEL, "a").embedding) == list(vectors[0])
    client.create(model="pirate", from_=MODEL, system="Talk like a pirate.", parameters={"temperature": 0})
    client.copy("pirate", "captain")
    assert client.show("captain").model_dump()["parameters"].split()[0] == "temperature"
    assert client.chat("captain", messages=[{"role": "user", "content": "Hello!"}]).message.content
    for name in ("pirate", "captain"):
        assert client.delete(name).status == "success"
    assert [model.model for model in client.list().models] == names
    try:
        client.delete("pirate")
    except ollama.ResponseError as error:
        assert error.status_code == 404
    else:
        raise AssertionError("it was deleted before")
    assert client.generate(MODEL, keep_alive=0).done_reason == "unload"
    assert client.ps().models == []


def ollama_pull(url: str) -> None:
    """The server's hub has this model."""
    import ollama

    client = _ollama(url)
    name = "hf.co/org/Tiny-GGUF:Q8_0"
    steps = list(client.pull(name, stream=True))
    assert [steps[0].status, steps[-1].status] == ["pulling manifest", "success"]
    assert max(step.completed or 0 for step in steps) == max(step.total or 0 for step in steps) > 0
    assert client.pull(name).status == "success"
    [pulled] = [each.model for each in client.list().models if "Tiny" in (each.model or "")]
    assert client.show(name).details.format == "gguf"
    assert client.delete(pulled).status == "success"
    try:
        client.pull("org/absent:Q8_0")
    except ollama.ResponseError as error:
        assert error.status_code == 404
    else:
        raise AssertionError("the hub does not have it")


def langchain_ollama(url: str) -> None:
    """What its suite does not ask: thoughts, and whether the model is there."""
    from langchain_ollama import ChatOllama

    asked: dict[str, Any] = {"model": MODEL, "base_url": url.removesuffix("/v1"), "temperature": 0}
    for reasoning in (True, False):
        thinker = ChatOllama(**asked, reasoning=reasoning, validate_model_on_init=True, keep_alive="5m")
        kept = thinker.invoke("What is 2+3?").additional_kwargs
        assert bool(kept.get("reasoning_content")) is reasoning


CASES: dict[str, Callable[[str], None]] = {
    case.__name__: case for case in (ollama_chat, ollama_models, ollama_pull, langchain_ollama)
}


if __name__ == "__main__":
    CASES[sys.argv[1]](sys.argv[2])
