"""Runs one client's public API against a server, outside the product's environment: `run.py CASE URL`.

Prints nothing and ends with 0 where everything was as it should be. Not collected by pytest: see test_python_clients.
"""

from __future__ import annotations

import asyncio
import json
import os
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


def openai_chat(url: str) -> None:
    import openai

    client = openai.OpenAI(base_url=url, api_key="none")
    reply = client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "Hello!"}])
    assert reply.choices[0].message.content
    stream = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "Hello!"}], stream=True, temperature=0
    )
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream)


def openai_tools(url: str) -> None:
    import openai

    client = openai.OpenAI(base_url=url, api_key="none")
    messages: Any = [{"role": "user", "content": WEATHER}]
    message = (
        client.chat.completions.create(model=MODEL, messages=messages, tools=[TOOL], temperature=0)
        .choices[0]
        .message
    )
    assert message.tool_calls
    assert json.loads(message.tool_calls[0].function.arguments) == {"city": "Oslo"}
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": '{"sky": "rain"}'}
    after = client.chat.completions.create(
        model=MODEL, messages=[*messages, message, result], tools=[TOOL], temperature=0
    )
    assert after.choices[0].message.content


def openai_parse(url: str) -> None:
    import openai
    from pydantic import BaseModel

    class Person(BaseModel):
        name: str
        age: int
        city: str

    client = openai.OpenAI(base_url=url, api_key="none")
    reply = client.chat.completions.parse(
        model=MODEL, messages=[{"role": "user", "content": EXTRACT}], response_format=Person, temperature=0
    )
    assert isinstance(reply.choices[0].message.parsed, Person)
    with client.chat.completions.stream(
        model=MODEL, messages=[{"role": "user", "content": EXTRACT}], response_format=Person, temperature=0
    ) as stream:
        final = stream.get_final_completion()
    assert isinstance(final.choices[0].message.parsed, Person)


def openai_responses(url: str) -> None:
    import openai
    from pydantic import BaseModel

    class Person(BaseModel):
        name: str
        age: int
        city: str

    client = openai.OpenAI(base_url=url, api_key="none", max_retries=0)
    hello = client.responses.create(model=MODEL, input="Hello!")
    assert hello.output_text
    assert client.responses.retrieve(hello.id).output_text == hello.output_text
    counted = client.responses.input_tokens.count(model=MODEL, input="Hello!")
    assert hello.usage is not None
    assert counted.input_tokens == hello.usage.input_tokens
    client.responses.delete(hello.id)

    tool: Any = {"type": "function", "strict": True, **TOOL["function"]}
    asked: dict[str, Any] = {"model": MODEL, "tools": [tool], "temperature": 0}
    first = client.responses.create(input=WEATHER, **asked)
    [call] = [item for item in first.output if item.type == "function_call"]
    assert json.loads(call.arguments) == {"city": "Oslo"}
    result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": '{"sky": "rain"}'}
    kept = client.responses.create(input=[result], previous_response_id=first.id, **asked)
    history: Any = [{"role": "user", "content": WEATHER}, *first.output, result]
    sent = client.responses.create(input=history, store=False, **asked)
    assert kept.output_text
    assert kept.output_text == sent.output_text
    with client.responses.stream(input=WEATHER, **asked) as stream:
        written = "".join(
            event.delta for event in stream if event.type == "response.function_call_arguments.delta"
        )
    assert json.loads(written) == {"city": "Oslo"}

    person = client.responses.parse(model=MODEL, input=EXTRACT, text_format=Person, temperature=0)
    assert isinstance(person.output_parsed, Person)
    with client.responses.stream(model=MODEL, input=EXTRACT, text_format=Person, temperature=0) as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert final.output_text == text
    assert isinstance(final.output_parsed, Person)
    short = client.responses.create(
        model=MODEL, input="Hello!", max_output_tokens=2, include=["message.output_text.logprobs"]
    )
    assert short.incomplete_details is not None
    assert (short.status, short.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    try:
        client.responses.create(model=MODEL, input="Hello!", previous_response_id=hello.id)
    except openai.BadRequestError as error:
        assert error.code == "previous_response_not_found"
    else:
        raise AssertionError("an answer that was deleted is not gone on from")


def langchain(url: str) -> None:
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI
    from pydantic import BaseModel

    @tool
    def get_weather(city: str) -> str:
        """Get the weather in a city"""
        assert city == "Oslo"
        return '{"sky": "rain"}'

    class Person(BaseModel):
        """A person."""

        name: str
        age: int

    chat = ChatOpenAI(model=MODEL, base_url=url, api_key="none", temperature=0)  # type: ignore[arg-type]
    bound = chat.bind_tools([get_weather])
    asked = HumanMessage(WEATHER)
    answer: Any = bound.invoke([asked])
    assert [call["name"] for call in answer.tool_calls] == ["get_weather"]
    result = ToolMessage(
        get_weather.invoke(answer.tool_calls[0]["args"]), tool_call_id=answer.tool_calls[0]["id"]
    )
    assert bound.invoke([asked, answer, result]).content
    for method in ("json_schema", "function_calling", "json_mode"):
        person = chat.with_structured_output(Person, method=method).invoke(EXTRACT + " JSON")  # type: ignore[arg-type]
        assert method == "json_mode" or isinstance(person, Person), method
    assert "".join(str(chunk.content) for chunk in chat.stream("Hello!"))


def instructor(url: str) -> None:
    import instructor as library
    import openai
    from pydantic import BaseModel

    class Person(BaseModel):
        name: str
        age: int

    for mode in (library.Mode.TOOLS, library.Mode.JSON_SCHEMA):
        client = library.from_openai(openai.OpenAI(base_url=url, api_key="none"), mode=mode)
        person = client.chat.completions.create(
            model=MODEL,
            response_model=Person,
            messages=[{"role": "user", "content": EXTRACT}],
            temperature=0,
            max_retries=0,
        )
        assert isinstance(person, Person), mode


def litellm(url: str) -> None:
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    import litellm as library

    reply: Any = library.completion(
        model=f"openai/{MODEL}",
        api_base=url,
        api_key="none",
        messages=[{"role": "user", "content": WEATHER}],
        tools=[TOOL],
        temperature=0,
    )
    assert reply.choices[0].message.tool_calls[0].function.name == "get_weather"
    parts: Any = library.completion(
        model=f"openai/{MODEL}",
        api_base=url,
        api_key="none",
        messages=[{"role": "user", "content": "Hello!"}],
        stream=True,
    )
    assert "".join(part.choices[0].delta.content or "" for part in parts)


def pydantic_ai(url: str) -> None:
    from pydantic import BaseModel
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    class Person(BaseModel):
        name: str
        age: int

    model = OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=url, api_key="none"))
    cities: list[str] = []
    agent = Agent(model, model_settings={"temperature": 0})

    @agent.tool_plain
    def get_weather(city: str) -> str:
        """Get the weather in a city"""
        cities.append(city)
        return '{"sky": "rain"}'

    assert agent.run_sync(WEATHER).output
    assert cities == ["Oslo"]
    typed = Agent(model, output_type=Person, model_settings={"temperature": 0}, retries=3)
    assert isinstance(typed.run_sync(EXTRACT).output, Person)

    async def stream() -> str:
        async with agent.run_stream("Hello!") as result:
            return await result.get_output()

    assert asyncio.run(stream())


def text_generation(url: str) -> None:
    import text_generation as library
    from text_generation.errors import ValidationError

    for base in (url.removesuffix("/v1"), url.removesuffix("/v1") + "/tgi"):
        client = library.Client(base)
        whole = client.generate(PROMPT, max_new_tokens=12, decoder_input_details=True)
        assert whole.generated_text
        assert whole.details.prefill[0].logprob is None
        assert whole.details.generated_tokens == len(whole.details.tokens)
        events = list(client.generate_stream(PROMPT, max_new_tokens=12))
        assert events[-1].generated_text == whole.generated_text
        assert [event.token.id for event in events] == [token.id for token in whole.details.tokens]
        best = client.generate(PROMPT, max_new_tokens=6, do_sample=True, best_of=2)
        assert len(best.details.best_of_sequences) == 1
        marked = client.generate(PROMPT, max_new_tokens=40, watermark=True)
        assert marked.generated_text
        grammar: Any = {"type": "regex", "value": "[0-9]{3}"}
        assert client.generate(PROMPT, max_new_tokens=20, grammar=grammar).generated_text.isdigit()
        try:
            client.generate(PROMPT, stop_sequences=list("abcde"))
        except ValidationError as error:
            assert "`stop` supports up to 4 stop sequences" in str(error)
        else:
            raise AssertionError("five stop strings are refused")

        async def stream(base: str = base) -> str:
            asynchronous = library.AsyncClient(base)
            assert (await asynchronous.generate(PROMPT, max_new_tokens=12)).generated_text
            return "".join(
                [
                    event.token.text
                    async for event in asynchronous.generate_stream(PROMPT, max_new_tokens=12)
                    if not event.token.special
                ]
            )

        assert asyncio.run(stream()) == whole.generated_text
    chat = library.Client(url.removesuffix("/v1") + "/tgi")
    answer = chat.chat(messages=[{"role": "user", "content": "Hello!"}], max_tokens=10, temperature=0.0)
    assert answer.choices[0].message.content


def huggingface_endpoint(url: str) -> None:
    from langchain_huggingface import HuggingFaceEndpoint

    for base in (url.removesuffix("/v1") + "/", url.removesuffix("/v1") + "/tgi"):
        # Its defaults sample.
        model: Any = HuggingFaceEndpoint(endpoint_url=base, max_new_tokens=12, seed=5, task="text-generation")
        whole = model.invoke(PROMPT)
        assert whole
        # As with TGI itself, the client lets the text of the last token through.
        assert "".join(model.stream(PROMPT)).removesuffix("<|im_end|>") == whole
        assert asyncio.run(model.ainvoke(PROMPT)) == whole
        stop = whole.split()[0]
        assert model.invoke(PROMPT, stop=[stop]) in ("", whole[: whole.index(stop)])


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
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_core.tools import tool
    from langchain_ollama import ChatOllama, OllamaEmbeddings
    from pydantic import BaseModel

    base = url.removesuffix("/v1")

    @tool
    def get_weather(city: str) -> str:
        """Get the weather in a city"""
        return '{"sky": "rain"}'

    class Person(BaseModel):
        """A person."""

        name: str
        age: int

    chat = ChatOllama(model=MODEL, base_url=base, temperature=0, validate_model_on_init=True, keep_alive="5m")
    bound = chat.bind_tools([get_weather])
    asked = HumanMessage(WEATHER)
    answer: Any = bound.invoke([asked])
    assert [(call["name"], call["args"]) for call in answer.tool_calls] == [("get_weather", {"city": "Oslo"})]
    result = ToolMessage('{"sky": "rain"}', tool_call_id=answer.tool_calls[0]["id"])
    assert bound.invoke([asked, answer, result]).content
    assert answer.usage_metadata["input_tokens"] > 0
    assert isinstance(chat.with_structured_output(Person, method="json_schema").invoke(EXTRACT), Person)
    assert "".join(str(chunk.content) for chunk in chat.stream("Hello!"))
    assert asyncio.run(chat.ainvoke("Hello!")).content
    for reasoning in (True, False):
        thinker = ChatOllama(model=MODEL, base_url=base, reasoning=reasoning, temperature=0)
        kept = thinker.invoke("What is 2+3?").additional_kwargs
        assert bool(kept.get("reasoning_content")) is reasoning
    embeddings = OllamaEmbeddings(model=MODEL, base_url=base)
    assert len(embeddings.embed_documents(["a", "b"])) == 2
    assert embeddings.embed_query("a")


CASES: dict[str, Callable[[str], None]] = {
    case.__name__: case
    for case in (
        openai_chat,
        openai_tools,
        openai_parse,
        openai_responses,
        langchain,
        instructor,
        litellm,
        pydantic_ai,
        text_generation,
        huggingface_endpoint,
        ollama_chat,
        ollama_models,
        ollama_pull,
        langchain_ollama,
    )
}


if __name__ == "__main__":
    CASES[sys.argv[1]](sys.argv[2] + "/v1")
