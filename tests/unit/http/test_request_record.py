"""What a record counts of the events of an answer."""

from __future__ import annotations

import errno
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from jan_serve.core.events import (
    Completed,
    Finished,
    GenerationEvent,
    ReasoningDelta,
    Started,
    TextDelta,
    Timings,
    ToolCallDelta,
    Usage,
)
from jan_serve.dialects.shared.default_error_body import render_error
from jan_serve.http import request_record
from jan_serve.http.disconnect import ConnectionHooks, attach_hooks
from jan_serve.http.errors import Envelopes
from jan_serve.http.lifecycle import Lifecycle
from jan_serve.http.request_record import (
    WARNING_HEADER,
    RequestContext,
    RequestRecord,
    RequestWatcher,
    record_of,
)

STARTED = Started(model="m", prompt_tokens=7, warnings=("partly enforced",))


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch) -> RequestRecord:
    """Each reading of the clock is a second after the last."""
    seconds = iter(range(100, 200))
    monkeypatch.setattr(request_record.time, "perf_counter", lambda: float(next(seconds)))
    return RequestRecord("r", started=90.0)


def observed(record: RequestRecord, *events: GenerationEvent) -> RequestRecord:
    for event in events:
        record.observe(event)
    return record


def test_an_answer_that_is_cut_short_has_the_counts_so_far(record: RequestRecord) -> None:
    observed(record, STARTED, TextDelta(0, "a"), Finished(index=0, reason="stop", completion_tokens=3))
    assert (record.model, record.prompt_tokens, record.completion_tokens) == ("m", 7, 3)
    assert (record.warnings, record.finish_reasons) == (("partly enforced",), ["stop"])
    assert (record.cached_tokens, record.queue_s, record.decode_s) == (0, None, None)


def test_the_final_counts_replace_those_before(record: RequestRecord) -> None:
    observed(
        record,
        STARTED,
        Finished(index=0, reason="stop", completion_tokens=3),
        Finished(index=1, reason="length", completion_tokens=4),
        Completed(
            usage=Usage(prompt_tokens=14, completion_tokens=8, cached_tokens=5),
            timings=Timings(queue_s=0.1, prefill_s=0.2, decode_s=0.3),
        ),
    )
    assert (record.prompt_tokens, record.completion_tokens, record.cached_tokens) == (14, 8, 5)
    assert (record.queue_s, record.prefill_s, record.decode_s) == (0.1, 0.2, 0.3)
    assert record.finish_reasons == ["stop", "length"]


def test_prompts_of_one_request_add_up_until_then(record: RequestRecord) -> None:
    assert observed(record, STARTED, STARTED).prompt_tokens == 14


def test_times_of_pieces(record: RequestRecord) -> None:
    observed(record, STARTED)
    assert record.first_token_s is None
    observed(record, ReasoningDelta(0, "a"))
    assert (record.first_token_s, record.token_gaps_s) == (10.0, [])
    observed(record, ToolCallDelta(0, 0), Finished(index=0, reason="stop"), TextDelta(1, "b"))
    assert (record.first_token_s, record.token_gaps_s) == (10.0, [1.0, 1.0])


pytestmark = pytest.mark.anyio

App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Around(RequestWatcher):
    """One request through the middleware: what was sent, logged and counted."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.observed: list[tuple[str, int, RequestRecord]] = []
        self.aborted = False
        self.lifecycle = Lifecycle()

    def end(self, route: str, status: int, record: RequestRecord) -> None:
        self.observed.append((route, status, record))

    async def run(
        self, app: App, path: str = "/x", headers: Sequence[tuple[bytes, bytes]] = (), **options: Any
    ) -> None:
        scope: Scope = {"type": "http", "method": "GET", "path": path, "headers": list(headers)}
        attach_hooks(scope, ConnectionHooks(b"/x", self.abort))
        context = RequestContext(
            app, envelopes=Envelopes({}, render_error), watchers=[self], lifecycle=self.lifecycle, **options
        )
        await context(scope, self.receive, self.send)

    def abort(self) -> None:
        self.aborted = True

    async def receive(self) -> Message:
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    def headers(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name, value in self.sent[0]["headers"]:
            found.setdefault(name.decode(), []).append(value.decode())
        return found


def answering(status: int = 200, **changes: Any) -> App:
    """An application that answers from a route, after it changed the record."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scope["route"] = SimpleNamespace(path="/x/{id}")
        for name, value in changes.items():
            setattr(record_of(scope), name, value)
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    return app


def failing(*, after_start: bool) -> App:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if after_start:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        raise RuntimeError("/secret/path")

    return app


@pytest.fixture
def around() -> Around:
    return Around()


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ([b"my-Id_1.2"], True),
        ([b"a" * 128], True),
        ([b"a" * 129], False),
        ([b"a b"], False),
        ([b"a\nb"], False),
        ([b"a\n"], False),
        ([b""], False),
        ([b"\xe9"], False),
        ([], False),
    ],
)
async def test_a_safe_request_id_is_kept(around: Around, sent: list[bytes], kept: bool) -> None:
    await around.run(answering(), headers=[(b"x-request-id", value) for value in sent])
    [request_id] = around.headers()["x-request-id"]
    assert request_id == around.observed[0][2].request_id
    assert (request_id.encode() in sent) == kept
    assert kept or request_id.startswith("req_")


async def test_warnings_are_headers_of_one_line(around: Around) -> None:
    await around.run(answering(warnings=("one\r\ntwo: é\x1f\x7f", "b" * 600)))
    assert around.headers()[WARNING_HEADER] == ["one  two: \\xe9  ", "b" * 500]


@pytest.mark.parametrize(
    ("app", "observed", "cancelled"),
    [
        (answering(404), ("/x/{id}", 404), False),
        (answering(499), ("/x/{id}", 499), True),
        (answering(cancelled=True), ("/x/{id}", 200), True),
        (failing(after_start=False), ("unmatched", 500), False),
    ],
)
async def test_the_route_and_status_are_counted_and_logged(
    around: Around, caplog: pytest.LogCaptureFixture, app: App, observed: tuple[str, int], cancelled: bool
) -> None:
    caplog.set_level(logging.INFO, "jan_serve.request")
    await around.run(app)
    [(route, status, record)] = around.observed
    assert ((route, status), record.cancelled) == (observed, cancelled)
    shown = "unmatched /" if route == "unmatched" else route
    assert caplog.messages[-1].startswith(f"GET {shown}") and caplog.messages[-1].endswith(f" {status}")


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/v1/nowhere", "/v1/nowhere"), ("/a b\n\x1b[31m", "/a%20b%0A%1B%5B31m"), ("/é\ud83d", "/%C3%A9%3F"),
        ("/" + "x" * 500, "/" + "x" * 79), ("/" + "é" * 500, ("/" + "%C3%A9" * 20)[:80]),
    ],
)  # fmt: skip
async def test_the_log_names_a_path_without_a_route(
    around: Around, caplog: pytest.LogCaptureFixture, path: str, shown: str
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 404, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    caplog.set_level(logging.INFO, "jan_serve.request")
    await around.run(app, path)
    assert caplog.messages == [f"GET unmatched {shown} 404"]
    assert around.observed[0][0] == "unmatched"


async def test_a_request_without_an_answer_was_cancelled(around: Around) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert around.lifecycle.open_requests == 1

    await around.run(app)
    assert [(status, record.cancelled) for _, status, record in around.observed] == [(499, True)]
    assert around.lifecycle.open_requests == 0


@pytest.mark.parametrize("path", ["/health", "/metrics", "/models/sse", "/dialect/probe"])
async def test_probes_are_counted_but_not_logged_and_hold_no_drain(
    around: Around, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    caplog.set_level(logging.INFO, "jan_serve.request")
    open_requests: list[int] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        open_requests.append(around.lifecycle.open_requests)
        await answering()(scope, receive, send)

    await around.run(app, path, probe_paths=["/dialect/probe"])
    assert (open_requests, len(around.observed), caplog.messages) == ([0], 1, [])


async def test_an_unexpected_error_before_the_answer_is_a_500_without_details(
    around: Around, caplog: pytest.LogCaptureFixture
) -> None:
    await around.run(failing(after_start=False))
    body = b"".join(message.get("body", b"") for message in around.sent)
    assert around.sent[0]["status"] == 500
    assert json.loads(body)["error"]["code"] == "internal_error"
    assert b"secret" not in body and not around.aborted
    assert "x-request-id" in around.headers()
    assert around.observed[0][2].error == "internal_error"
    assert "/secret/path" in caplog.text, "the log has it"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (MemoryError(), "insufficient_memory"),
        (RuntimeError("can't start new thread"), "insufficient_memory"),
        (OSError(errno.EMFILE, "Too many open files"), "unavailable"),
    ],
)
async def test_what_is_lacking_for_a_moment_is_no_fault_of_the_server(
    around: Around, error: Exception, code: str
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise error

    await around.run(app)
    assert around.sent[0]["status"] == 503 and around.observed[0][2].error == code
    assert int(dict(around.sent[0]["headers"])[b"retry-after"]) >= 1


async def test_an_unexpected_error_during_the_answer_drops_the_connection(around: Around) -> None:
    await around.run(failing(after_start=True))
    assert around.aborted and len(around.sent) == 1
    assert around.observed[0][2].error == "internal_error"


async def test_a_dialect_rewrites_the_path_before_all_else(around: Around) -> None:
    seen: list[tuple[str, int]] = []

    def rewrite(scope: Scope) -> None:
        scope["path"] = "/dialect/probe"

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append((scope["path"], around.lifecycle.open_requests))

    await around.run(app, rewrites=[rewrite], probe_paths=["/dialect/probe"])
    assert seen == [("/dialect/probe", 0)], "it counts as the probe that it became"
