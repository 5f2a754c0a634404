"""Errors have the form of the protocol whose path was called, also inside a stream."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jan_serve.errors import ModelNotFound, Unavailable
from jan_serve.http.errors import Problem, problem_of
from jan_serve.proxy.problems import end_of_broken, envelopes, node_failed
from jan_serve.proxy.upstream.connection import Failure, NodeFailure

FAILED = node_failed("10.0.0.1:80", NodeFailure(Failure.RESET, "ended")).problem
WORDS = "The node 10.0.0.1:80 ended."


def anthropic(kind: str, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


@pytest.mark.parametrize(
    ("path", "status", "body"),
    [
        ("/v1/messages", 502, anthropic("api_error", WORDS)),
        ("/v1/messages/count_tokens", 502, anthropic("api_error", WORDS)),
        ("/anthropic/v1/models", 502, anthropic("api_error", WORDS)),
        ("/api/chat", 502, {"error": WORDS}),
        ("/api/pull", 502, {"error": WORDS}),
        ("/v2/rerank", 502, {"message": WORDS}),
        ("/tgi/generate", 502, {"error": WORDS, "error_type": "node_failed"}),
        ("/generate_stream", 502, {"error": WORDS, "error_type": "node_failed"}),
    ],
)
def test_a_failure_of_a_node_in_each_form(path: str, status: int, body: object) -> None:
    answer = envelopes().render(path, FAILED, "req_1")
    assert (answer.status_code, json.loads(bytes(answer.body))) == (status, body)


@pytest.mark.parametrize(
    "path", ["/v1/responses", "/v1/rerank", "/api/v0/models", "/v1/models/x", "/v1/decide"]
)
def test_openais_form_has_the_code(path: str) -> None:
    answer = envelopes().render(path, FAILED)
    assert json.loads(bytes(answer.body))["error"]["code"] == "node_failed"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/lmdeploy/generate", "/nodes/add", "/unknown"])
def test_lmdeploys_form_is_flat(path: str) -> None:
    body = json.loads(bytes(envelopes().render(path, FAILED).body))
    assert (body["message"], body["code"], body["object"]) == (WORDS, 502, "error")


def test_words_and_statuses_that_clients_know() -> None:
    forms = envelopes()
    missing, busy = problem_of(ModelNotFound("m")), problem_of(Unavailable("Busy.", retry_after=5.0))
    assert json.loads(bytes(forms.render("/api/chat", missing).body)) == {"error": "model 'm' not found"}
    overloaded = forms.render("/v1/messages", busy)
    assert (overloaded.status_code, overloaded.headers["retry-after"]) == (529, "5")
    assert forms.render("/api/chat", busy).status_code == 503


SSE, LINES = b"text/event-stream; charset=utf-8", b"application/x-ndjson"


def event(body: object) -> bytes:
    return b"data: " + json.dumps(body, separators=(",", ":")).encode() + b"\n\n"


@pytest.mark.parametrize(
    ("path", "media_type", "tail", "expected"),
    [
        ("/v1/messages", SSE, b"x\n\n", b"event: error\n" + event(anthropic("api_error", WORDS))),
        ("/api/chat", LINES, b"{}\n", json.dumps({"error": WORDS}, separators=(",", ":")).encode() + b"\n"),
        ("/tgi/generate_stream", SSE, b"", event({"error": WORDS, "error_type": "node_failed"})),
        ("/tgi/v1/chat/completions", SSE, b"\r\n\r\n", event({"error": {"message": WORDS, "http_status_code": 422}})),
        ("/v1/messages", SSE, b"data: {", None),
        ("/v1/messages", b"application/json", b"\n\n", None),
        ("/api/chat", LINES, b'{"message"', None),
        ("/api/chat", SSE, b"\n\n", None),
        ("/v1/completions", LINES, b"\n", None),
    ],
)  # fmt: skip
def test_a_broken_stream_ends_in_its_protocols_words(
    path: str, media_type: bytes, tail: bytes, expected: bytes | None
) -> None:
    problem = Problem(FAILED.status, FAILED.code, FAILED.message, request_id="req_1")
    assert end_of_broken(path, media_type, tail, problem) == expected


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/lmdeploy/generate"])
def test_other_streams_end_with_an_error_that_openais_clients_raise(path: str) -> None:
    ending = end_of_broken(path, SSE, b"\n\n", FAILED)
    assert ending is not None
    assert json.loads(ending.removeprefix(b"data: "))["error"]["code"] == 502
