"""Runs one client's public API against a server, outside the product's environment: `run.py CASE URL`.

Prints nothing and ends with 0 where everything was as it should be. Not collected by pytest: see test_python_clients.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
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
GREEDY = {"temperature": 0}  # newer versions of Anthropic's client have no field for it
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


def openai_batches(url: str) -> None:
    import openai

    client = openai.OpenAI(base_url=url, api_key="none", max_retries=0)
    bodies: list[Any] = [{"model": MODEL, "input": "Hello!"}, {"model": MODEL, "input": 3}]
    rows = [
        {"custom_id": str(number), "method": "POST", "url": "/v1/responses", "body": body}
        for number, body in enumerate(bodies)
    ]
    content = "".join(json.dumps(row) + "\n" for row in rows).encode()
    file = client.files.create(file=("lines.jsonl", content), purpose="batch")
    batch = client.batches.create(input_file_id=file.id, endpoint="/v1/responses", completion_window="24h")
    while batch.status not in ("completed", "failed"):
        time.sleep(0.1)
        batch = client.batches.retrieve(batch.id)
    assert batch.output_file_id is not None and batch.error_file_id is not None
    [answer] = client.files.content(batch.output_file_id).text.splitlines()
    [error] = client.files.content(batch.error_file_id).text.splitlines()
    assert json.loads(answer)["response"]["body"]["object"] == "response"
    assert json.loads(error)["response"]["status_code"] == 422
    assert batch.id in [each.id for each in client.batches.list()]
    assert client.files.delete(file.id).deleted

    background = client.responses.create(model=MODEL, input="Hello!", background=True)
    assert background.status == "queued"
    with client.responses.retrieve(background.id, stream=True, starting_after=1) as stream:
        numbers = [event.sequence_number for event in stream]
    assert numbers == list(range(2, numbers[-1] + 1))
    assert client.responses.retrieve(background.id).status == "completed"
    assert client.responses.cancel(background.id).status == "completed"


def anthropic_batches(url: str) -> None:
    import anthropic

    client = anthropic.Anthropic(base_url=url.removesuffix("/v1"), api_key="none", max_retries=0)
    params: Any = {"model": MODEL, "max_tokens": 8, "messages": [{"role": "user", "content": "Hello!"}]}
    batch = client.messages.batches.create(
        requests=[
            {"custom_id": "good", "params": params},
            {"custom_id": "bad", "params": {**params, "max_tokens": -1}},
        ]
    )
    while batch.processing_status != "ended":
        time.sleep(0.1)
        batch = client.messages.batches.retrieve(batch.id)
    kinds = {each.custom_id: each.result.type for each in client.messages.batches.results(batch.id)}
    assert kinds == {"good": "succeeded", "bad": "errored"}
    assert [each.id for each in client.messages.batches.list()] == [batch.id]
    assert client.messages.batches.delete(batch.id).type == "message_batch_deleted"


def anthropic_messages(url: str) -> None:
    import anthropic

    client = anthropic.Anthropic(base_url=url.removesuffix("/v1"), api_key="none", max_retries=0)
    messages: Any = [{"role": "user", "content": "Hello!"}]
    asked: dict[str, Any] = {"model": MODEL, "max_tokens": 64, "messages": messages}
    hello = client.messages.create(**asked)
    assert hello.content[0].type == "text"
    assert (hello.model, hello.stop_reason, hello._request_id is not None) == (MODEL, "end_turn", True)
    counted = client.messages.count_tokens(model=MODEL, messages=messages)
    assert counted.input_tokens == hello.usage.input_tokens + (hello.usage.cache_read_input_tokens or 0)
    again = client.messages.create(**asked)
    assert again.usage.cache_read_input_tokens
    with client.messages.stream(**asked, extra_body=GREEDY) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert final.content[0].type == "text"
    assert final.content[0].text == text
    assert final.usage.output_tokens > 0
    short = client.messages.create(**asked | {"max_tokens": 2})
    assert (short.stop_reason, short.usage.output_tokens) == ("max_tokens", 2)
    assert client.messages.create(**asked | {"max_tokens": 0}).content == []
    stopped = client.messages.create(**asked, extra_body=GREEDY, stop_sequences=[text.split()[1]])
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", text.split()[1])
    thought = client.messages.create(**asked, thinking={"type": "enabled", "budget_tokens": 1024})
    assert thought.content
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).display_name == MODEL


def anthropic_tools(url: str) -> None:
    import anthropic
    from pydantic import BaseModel

    class Person(BaseModel):
        name: str
        age: int
        city: str

    client = anthropic.Anthropic(base_url=url.removesuffix("/v1"), api_key="none", max_retries=0)
    tool: Any = {"name": "get_weather", "description": "Get the weather in a city", "input_schema": SCHEMA}
    question: Any = {"role": "user", "content": WEATHER}
    asked: dict[str, Any] = {"model": MODEL, "max_tokens": 200, "tools": [tool], "extra_body": GREEDY}
    first = client.messages.create(messages=[question], **asked)
    assert first.stop_reason == "tool_use"
    call = first.content[-1]
    assert call.type == "tool_use"
    assert call.input == {"city": "Oslo"}
    with client.messages.stream(messages=[question], **asked) as stream:
        pieces = [event.partial_json for event in stream if event.type == "input_json"]
        streamed = stream.get_final_message().content[-1]
    assert json.loads("".join(pieces)) == {"city": "Oslo"}
    assert streamed.type == "tool_use"
    assert streamed.input == {"city": "Oslo"}
    result: Any = {"type": "tool_result", "tool_use_id": call.id, "content": '{"sky": "rain"}'}
    turns: Any = [
        question,
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": [result]},
    ]
    assert client.messages.create(messages=turns, **asked).content
    forced = client.messages.create(
        messages=[{"role": "user", "content": "Hello!"}],
        tool_choice={"type": "tool", "name": "get_weather"},
        **asked,
    )
    assert [block.type for block in forced.content] == ["tool_use"]

    extract: Any = [{"role": "user", "content": EXTRACT}]
    parsed = client.messages.parse(
        model=MODEL, max_tokens=200, messages=extract, output_format=Person, extra_body=GREEDY
    )
    assert isinstance(parsed.parsed_output, Person)


def anthropic_errors(url: str) -> None:
    import anthropic

    client = anthropic.Anthropic(base_url=url.removesuffix("/v1"), api_key="none", max_retries=0)
    hello: Any = [{"role": "user", "content": "Hello!"}]
    long: Any = [{"role": "user", "content": "word " * 20_000}]
    try:
        client.messages.create(model=MODEL, max_tokens=9, messages=long)
    except anthropic.BadRequestError as error:
        assert "prompt is too long: " in str(error)
        assert error.type == "invalid_request_error"
    else:
        raise AssertionError("a prompt that is too long is refused")
    try:
        client.messages.create(model=MODEL, max_tokens=9, messages=hello, extra_body={"temperature": 9})
    except anthropic.BadRequestError as error:
        assert "temperature" in str(error)
    else:
        raise AssertionError("a temperature out of range is refused")
    try:
        client.messages.batches.retrieve("msgbatch_none")
    except anthropic.NotFoundError as error:
        assert "msgbatch_none" in str(error)
    else:
        raise AssertionError("a batch that is not there is refused")
    with client.messages.stream(model=MODEL, max_tokens=4000, messages=hello) as stream:
        for _ in stream:
            break
    assert client.messages.create(model=MODEL, max_tokens=9, messages=hello).content


def anthropic_thinking(url: str) -> None:
    """Against a scripted model that thinks, speaks and calls."""
    import anthropic

    client = anthropic.Anthropic(base_url=url.removesuffix("/v1"), api_key="none", max_retries=0)
    tool: Any = {"name": "now", "input_schema": {"type": "object"}}
    asked: dict[str, Any] = {
        "model": "any",
        "max_tokens": 99,
        "tools": [tool],
        "thinking": {"type": "adaptive"},
    }
    with client.messages.stream(messages=[{"role": "user", "content": "Hi"}], **asked) as stream:
        kinds = {event.type for event in stream}
        message = stream.get_final_message()
    assert {"thinking", "signature", "text", "input_json"} <= kinds
    thought, text, call = message.content
    assert (thought.type, text.type, call.type) == ("thinking", "text", "tool_use")
    assert (thought.thinking, text.text) == ("Hmm.", "Let me see.")
    assert message.model == "any"
    turns: Any = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": message.content},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "noon"}]},
    ]
    assert client.messages.create(messages=turns, **asked).content


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


CASES: dict[str, Callable[[str], None]] = {
    case.__name__: case
    for case in (
        openai_chat,
        openai_tools,
        openai_parse,
        openai_responses,
        openai_batches,
        anthropic_batches,
        anthropic_messages,
        anthropic_tools,
        anthropic_errors,
        anthropic_thinking,
        instructor,
        pydantic_ai,
        text_generation,
        huggingface_endpoint,
    )
}


if __name__ == "__main__":
    CASES[sys.argv[1]](sys.argv[2] + "/v1")
