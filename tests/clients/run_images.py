"""Sends an image through a client's public API, and reads what the built-in model sees: `run_images.py CASE URL`."""

from __future__ import annotations

import base64
import struct
import sys
import zlib
from collections.abc import Callable
from typing import Any

MODEL = "jan-tiny"
ASK = "What is in this picture?"
SEEN = "I see a red square."


def _png() -> bytes:
    """32x32: a red square on white."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    blank = b"\0" + b"\xff" * 96
    crossed = b"\0" + b"\xff" * 24 + b"\xff\0\0" * 16 + b"\xff" * 24
    rows = blank * 8 + crossed * 16 + blank * 8
    header = struct.pack(">IIBBBBB", 32, 32, 8, 2, 0, 0, 0)
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            chunk(b"IHDR", header),
            chunk(b"IDAT", zlib.compress(rows)),
            chunk(b"IEND", b""),
        ]
    )


BASE64 = base64.b64encode(_png()).decode()
URL = f"data:image/png;base64,{BASE64}"
PARTS: Any = [
    {"type": "text", "text": ASK},
    {"type": "image_url", "image_url": {"url": URL, "detail": "low"}},
]
IMAGE_TOKENS = 74


def openai_chat(url: str) -> None:
    import openai

    client = openai.OpenAI(base_url=url, api_key="none", max_retries=0)
    seen, blind = (
        client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": content}], max_tokens=16, temperature=0
        )
        for content in (PARTS, ASK)
    )
    assert seen.choices[0].message.content == SEEN
    assert seen.usage is not None and blind.usage is not None
    assert seen.usage.prompt_tokens - blind.usage.prompt_tokens == IMAGE_TOKENS
    stream = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": PARTS}],
        max_tokens=16,
        temperature=0,
        stream=True,
    )
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == SEEN
    broken: Any = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]
    try:
        client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": broken}])
    except openai.BadRequestError as error:
        assert error.param == "messages[0].content[0].image_url"
        assert error.code == "invalid_image"
    else:
        raise AssertionError("an image that is none was taken")


def openai_responses(url: str) -> None:
    import openai

    client = openai.OpenAI(base_url=url, api_key="none", max_retries=0)
    content: Any = [
        {"type": "input_image", "image_url": URL, "detail": "auto"},
        {"type": "input_text", "text": ASK},
    ]
    first = client.responses.create(
        model=MODEL, input=[{"role": "user", "content": content}], max_output_tokens=16, temperature=0
    )
    assert first.output_text == SEEN
    assert first.usage is not None and first.usage.input_tokens > IMAGE_TOKENS
    again = client.responses.create(
        model=MODEL, input="And which colour?", previous_response_id=first.id, max_output_tokens=16
    )
    assert again.usage is not None
    assert again.usage.input_tokens_details.cached_tokens >= IMAGE_TOKENS


def anthropic_messages(url: str) -> None:
    import anthropic

    client = anthropic.Anthropic(base_url=url.removesuffix("/v1"), api_key="none", max_retries=0)
    source: Any = {"type": "base64", "media_type": "image/png", "data": BASE64}
    content: Any = [{"type": "image", "source": source}, {"type": "text", "text": ASK}]
    messages: Any = [{"role": "user", "content": content}]
    counted = client.messages.count_tokens(model=MODEL, messages=messages)
    reply = client.messages.create(model=MODEL, messages=messages, max_tokens=16)
    assert [block.text for block in reply.content if block.type == "text"] == [SEEN]
    cached = reply.usage.cache_read_input_tokens or 0
    assert reply.usage.input_tokens + cached == counted.input_tokens > IMAGE_TOKENS


def ollama_chat(url: str) -> None:
    import ollama

    client = ollama.Client(host=url.removesuffix("/v1"))
    assert "vision" in (client.show(MODEL).capabilities or [])
    options: Any = {"num_predict": 40, "temperature": 0}
    image = _png()
    reply = client.chat(
        MODEL, messages=[{"role": "user", "content": ASK, "images": [image]}], options=options
    )
    assert reply.message.content == SEEN
    assert (reply.prompt_eval_count or 0) > IMAGE_TOKENS
    generated = client.generate(MODEL, ASK, images=[image], options=options)
    assert generated.prompt_eval_count == reply.prompt_eval_count


def huggingface_chat(url: str) -> None:
    from huggingface_hub import InferenceClient

    client = InferenceClient(base_url=url, api_key="none")
    reply = client.chat_completion(
        messages=[{"role": "user", "content": PARTS}], model=MODEL, max_tokens=16, temperature=0
    )
    assert reply.choices[0].message.content == SEEN
    assert reply.usage.prompt_tokens > IMAGE_TOKENS


CASES: dict[str, Callable[[str], None]] = {
    case.__name__: case
    for case in (openai_chat, openai_responses, anthropic_messages, ollama_chat, huggingface_chat)
}

if __name__ == "__main__":
    CASES[sys.argv[1]](f"{sys.argv[2]}/v1")
