"""Spans of requests: what is above and below what, their times and attributes, and that they have no text."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.trace import SpanKind, StatusCode

from jan_serve.errors import SettingsError
from jan_serve.http.tracing import Tracing
from tests.support.engine.fake_client import FakeClient, FakeModels, failing, fake_facts
from tests.support.servers.fronts import http_client
from tests.support.servers.journaled import journaled_server
from tests.support.spans import Spans, context, kept_spans

pytestmark = pytest.mark.anyio

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SECRET = "the secret of the prompt"
CHAT = {"messages": [{"role": "user", "content": SECRET}], "max_tokens": 5}
COLLECTOR = "http://127.0.0.1:9"

CALLS: list[tuple[str, str, dict[str, Any]]] = [
    ("chat", "/v1/chat/completions", CHAT),
    ("text_completion", "/v1/completions", {"prompt": SECRET}),
    ("chat", "/v1/responses", {"input": SECRET}),
    ("chat", "/v1/messages", CHAT),
    ("chat", "/api/chat", {**CHAT, "stream": False}),
    ("text_completion", "/generate", {"inputs": SECRET}),
    ("embeddings", "/v1/embeddings", {"input": SECRET}),
]


async def called(
    path: str,
    body: dict[str, Any],
    headers: dict[str, str] | None = None,
    client: FakeClient | None = None,
    status: int = 200,
) -> Spans:
    """The spans of one call."""
    with kept_spans() as spans:
        models = FakeModels(client or FakeClient())
        async with http_client(models, fresh=True, otel_endpoint=COLLECTOR) as front:
            answer = await front.post(path, json={"model": "fake", **body}, headers=headers)
            assert answer.status_code == status, answer.text
    return spans


@pytest.mark.parametrize(("operation", "path", "body"), CALLS, ids=[call[1] for call in CALLS])
async def test_a_span_of_the_request_of_the_model_and_of_each_phase(
    operation: str, path: str, body: dict[str, Any]
) -> None:
    facts = fake_facts(is_embedding_model=operation == "embeddings")
    spans = await called(path, body, {"x-request-id": "mine"}, FakeClient(facts=facts))
    request, model = spans.one(f"POST {path}"), spans.one(f"{operation} fake")
    assert request.kind is SpanKind.SERVER and request.parent is None
    assert request.attributes is not None and model.attributes is not None
    assert dict(request.attributes) == {
        "http.request.method": "POST",
        "url.scheme": "http",
        "http.route": path,
        "http.response.status_code": 200,
        "jan_serve.request_id": "mine",
    }
    assert model.parent is not None and model.parent.span_id == context(request).span_id
    assert model.attributes["gen_ai.operation.name"] == operation
    assert model.attributes["gen_ai.provider.name"] == "jan_serve"
    assert model.attributes.get("gen_ai.request.model", "fake") == "fake"  # this route of TGI has no name
    assert model.attributes["gen_ai.response.model"] == "fake"
    assert model.attributes["gen_ai.usage.input_tokens"]
    phases = [span for span in spans.read() if span not in (request, model)]
    assert {span.parent.span_id for span in phases if span.parent} == {context(model).span_id}
    names = {span.name for span in phases}
    if operation == "embeddings":
        assert names == {"reading"}
    else:
        assert names - {"template", "compile", "media"} == {"queue", "reading", "writing"}
        assert model.attributes["gen_ai.response.finish_reasons"] == ("stop",)
        seconds = {span.name: (span.end_time or 0) - (span.start_time or 0) for span in phases}
        assert [seconds[name] // 10**8 for name in ("queue", "reading", "writing")] == [1, 2, 3]
    assert ("template" in names) == (operation == "chat")
    assert not any(SECRET in span.to_json() or "Hel" in span.to_json() for span in spans.read())


@pytest.mark.parametrize(
    ("header", "taken"),
    [
        (f"00-{TRACE}-{PARENT}-01", True),
        (f"00-{TRACE}-{PARENT}", False),
        (f"00-{'0' * 32}-{PARENT}-01", False),
        (f"ff-{TRACE}-{PARENT}-01", False),
        ("é" * 5000, False),
    ],
)
async def test_the_trace_of_the_client_goes_on(header: str, taken: bool) -> None:
    headers: Any = {"traceparent": header.encode(), "tracestate": b"a=b"}
    request = (await called("/v1/chat/completions", CHAT, headers)).one("POST /v1/chat/completions")
    assert (f"{context(request).trace_id:032x}" == TRACE) == taken
    assert (request.parent is not None) == taken
    if request.parent is not None:
        assert f"{request.parent.span_id:016x}" == PARENT
        assert context(request).trace_state.to_header() == "a=b"


async def ended_openai_batch(client: httpx.AsyncClient, headers: dict[str, str]) -> None:
    line = {
        "custom_id": "a",
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": {"model": "fake"} | CHAT,
    }
    form = {"file": ("input.jsonl", json.dumps(line).encode())}
    file = (await client.post("/v1/files", files=form, data={"purpose": "batch"})).json()["id"]
    asks = {"input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    batch = (await client.post("/v1/batches", json=asks, headers=headers)).json()
    while batch["status"] != "completed":
        batch = (await client.get(f"/v1/batches/{batch['id']}")).json()


async def ended_anthropic_batch(client: httpx.AsyncClient, headers: dict[str, str]) -> None:
    asks = {"requests": [{"custom_id": "a", "params": {"model": "fake"} | CHAT}]}
    batch = (await client.post("/v1/messages/batches", json=asks, headers=headers)).json()
    while batch["processing_status"] != "ended":
        batch = (await client.get(f"/v1/messages/batches/{batch['id']}")).json()


@pytest.mark.parametrize(
    ("end", "batches", "line"),
    [
        (ended_openai_batch, "/v1/batches", "/v1/chat/completions"),
        (ended_anthropic_batch, "/v1/messages/batches", "/v1/messages"),
    ],
)
async def test_the_lines_of_a_batch_are_below_the_request_that_made_it(
    tmp_path: Path, end: Any, batches: str, line: str
) -> None:
    with kept_spans() as spans:
        async with (
            journaled_server(tmp_path, FakeModels(FakeClient()), otel_endpoint=COLLECTOR) as client,
            asyncio.timeout(60),
        ):
            await end(client, {"traceparent": f"00-{TRACE}-{PARENT}-01"})
    made, answered, model = (spans.one(name) for name in (f"POST {batches}", f"POST {line}", "chat fake"))
    assert f"{context(made).trace_id:032x}" == TRACE
    assert [span.parent and span.parent.span_id for span in (answered, model)] == [
        context(made).span_id, context(answered).span_id,
    ]  # fmt: skip
    assert {context(span).trace_id for span in (answered, model)} == {context(made).trace_id}
    assert not any(SECRET in span.to_json() for span in spans.read())


async def test_a_trace_that_is_not_sampled_is_not_sent() -> None:
    spans = await called("/v1/chat/completions", CHAT, {"traceparent": f"00-{TRACE}-{PARENT}-00"})
    assert spans.read() == []


@pytest.mark.parametrize(
    ("body", "client", "status", "code"),
    [
        (CHAT, FakeClient(script=failing(RuntimeError("x"))), 500, "internal_error"),
        ({"messages": 7}, FakeClient(), 422, "validation_error"),
    ],
)
async def test_errors_have_their_code(
    body: dict[str, Any], client: FakeClient, status: int, code: str
) -> None:
    spans = await called("/v1/chat/completions", body, client=client, status=status)
    request = spans.one("POST /v1/chat/completions")
    assert request.attributes is not None and request.attributes["error.type"] == code
    # A request that is wrong is no error of the server.
    assert (request.status.status_code is StatusCode.ERROR) == (status == 500)


async def test_a_collector_that_fails_fails_no_request() -> None:
    class Broken:
        def export(self, spans: object) -> None:
            raise OSError("no collector")

        def shutdown(self) -> None:
            raise OSError("no collector")

    def broken(endpoint: str, service: str) -> Tracing:
        return Tracing(Broken(), service)

    with pytest.MonkeyPatch.context() as patch:
        from jan_serve.http import tracing

        patch.setattr(tracing, "tracing_to", broken)
        async with http_client(fresh=True, otel_endpoint=COLLECTOR) as front:
            answer = await front.post("/v1/chat/completions", json={"model": "fake", **CHAT})
    assert answer.status_code == 200


def test_without_the_packages_the_setting_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from jan_serve.http.tracing import tracing_to

    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(SettingsError, match=r"pip install 'jan-serve\[otel\]'"):
        tracing_to(COLLECTOR, "x")
