"""PDFs and text files in every dialect that has them: what the model reads, and what is refused by which field."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest

from jan_serve.core.messages import DOCUMENT_NOTE
from jan_serve.generation import document_reader
from jan_serve.generation.document_reader import MAX_DOCUMENTS
from tests.support.engine.fake_client import FakeClient, FakeModels, prompt_text
from tests.support.media import pdfs
from tests.support.servers.fronts import http_client

pytestmark = pytest.mark.anyio

ASK = "What does it say?"
Way = tuple[str, Callable[[str], dict[str, Any]], str]


def _url(data: str) -> str:
    return f"data:application/pdf;base64,{data}"


def _chat(data: str) -> dict[str, Any]:
    file = {"type": "file", "file": {"filename": "a.pdf", "file_data": _url(data)}}
    return {"messages": [{"role": "user", "content": [file, {"type": "text", "text": ASK}]}]}


def _result(data: str) -> dict[str, Any]:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    turn = {"role": "assistant", "tool_calls": [call]}
    return {
        "messages": [
            turn,
            {"role": "tool", "tool_call_id": "c", "content": _chat(data)["messages"][0]["content"]},
        ]
    }


def _response(data: str) -> dict[str, Any]:
    file = {"type": "input_file", "filename": "a.pdf", "file_data": _url(data)}
    return {"input": [{"role": "user", "content": [file, {"type": "input_text", "text": ASK}]}]}


def _block(data: str) -> dict[str, Any]:
    source = {"type": "base64", "media_type": "application/pdf", "data": data}
    return {"type": "document", "title": "a.pdf", "source": source}


def _message(data: str) -> dict[str, Any]:
    content = [_block(data), {"type": "text", "text": ASK}]
    return {"model": "fake", "max_tokens": 9, "messages": [{"role": "user", "content": content}]}


WAYS: list[Way] = [
    ("/v1/chat/completions", _chat, "messages[0].content[0].file.file_data"),
    ("/v1/responses", _response, "input[0].content[0].file_data"),
    ("/v1/messages", _message, "messages[0].content[0].source"),
]


async def _post(path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any], str]:
    """Status, body, and the last prompt of the model."""
    engine = FakeClient()
    async with http_client(FakeModels(engine)) as client:
        reply = await client.post(path, json=body)
    return reply.status_code, reply.json(), prompt_text(engine.requests[-1]) if engine.requests else ""


def encoded(file: bytes) -> str:
    return base64.b64encode(file).decode()


@pytest.mark.parametrize(("path", "body", "field"), WAYS)
@pytest.mark.parametrize(
    "file", [pdfs.pdf("Good news.", "More."), b"junk\n" + pdfs.pdf("Good news.", "More.")]
)
async def test_the_model_reads_its_pages(path: str, body: Any, field: str, file: bytes) -> None:
    status, _, prompt = await _post(path, body(encoded(file)))
    assert status == 200
    assert "a.pdf" in prompt
    assert f"[page 1]\nGood news.\n\n[page 2]\nMore.\n\n{ASK}" in prompt


@pytest.mark.parametrize(("path", "body", "field"), WAYS)
async def test_text_is_read_as_it_is(path: str, body: Any, field: str) -> None:
    status, _, prompt = await _post(path, body(encoded("Größe: 5\n".encode())))
    assert status == 200
    assert f"Größe: 5\n\n\n{ASK}" in prompt


@pytest.mark.parametrize(("path", "body", "field"), WAYS)
@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("", "neither a PDF nor text in UTF-8"),
        ("****", "is not encoded as base64"),
        (encoded(b"\x89PNG\r\n\x1a\n\xff"), "neither a PDF nor text in UTF-8"),
        (encoded(b"a\0b"), "neither a PDF nor text in UTF-8"),
        (encoded(pdfs.encrypted("x")), "the PDF is encrypted"),
        (encoded(pdfs.pdf("")), "the PDF has no text"),
        (encoded(pdfs.endless_pages()), "the PDF is damaged"),
    ],
)
async def test_what_cannot_be_read_is_refused_with_its_place(
    path: str, body: Any, field: str, data: str, words: str
) -> None:
    status, reply, _ = await _post(path, body(data))
    assert status == 400
    message = reply["error"]["message"]
    assert message.startswith(f"{field}: ")
    assert words in message


@pytest.mark.parametrize(("path", "body", "field"), WAYS)
async def test_large_files_and_many_are_refused(
    path: str, body: Any, field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document_reader, "MAX_FILE_BYTES", 1000)
    status, reply, _ = await _post(path, body("A" * 4000))
    assert (status, "the file has more than 1000 bytes" in reply["error"]["message"]) == (400, True)
    many = body(encoded(b"a"))
    content = next(iter(many.get("messages") or many["input"]))["content"]
    content[:0] = [content[0]] * MAX_DOCUMENTS
    status, reply, _ = await _post(path, many)
    assert (status, f"the limit is {MAX_DOCUMENTS}" in reply["error"]["message"]) == (400, True)


async def test_what_a_tool_gave_is_a_note_if_it_cannot_be_read() -> None:
    status, _, prompt = await _post("/v1/chat/completions", _result(encoded(pdfs.pdf("Good news."))))
    assert (status, "Good news." in prompt) == (200, True)
    status, _, prompt = await _post("/v1/chat/completions", _result(encoded(pdfs.pdf(""))))
    assert (status, DOCUMENT_NOTE in prompt) == (200, True)


async def test_a_file_elsewhere_is_refused() -> None:
    content = [{"type": "file", "file": {"file_id": "file-1"}}]
    status, reply, _ = await _post(
        "/v1/chat/completions", {"messages": [{"role": "user", "content": content}]}
    )
    assert status == 400
    assert reply["error"]["message"].startswith(
        "messages[0].content[0].file.file_data: a file needs its content"
    )
