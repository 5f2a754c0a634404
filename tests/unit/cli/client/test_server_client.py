"""Failures between a command and the server become a message, a next step and an exit status."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest
from pydantic import SecretStr

from jan_serve.cli.client.server_client import ServerClient
from jan_serve.cli.errors import CommandError
from jan_serve.config import ServerAddress
from tests.support.servers.served_app import ServedApp
from tests.unit.cli.conftest import Run


def whole_request(sock: socket.socket) -> bytes:
    """Head and body, which may arrive one after the other."""
    request = b""
    while b"\r\n\r\n" not in request and (part := sock.recv(65536)):
        request += part
    head, _, body = request.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: (\d+)", head)
    while length is not None and len(body) < int(length[1]) and (part := sock.recv(65536)):
        request += part
        body += part
    return request


@contextmanager
def answering(*answers: bytes, heads: list[bytes] | None = None) -> Generator[str]:
    """A server that sends these bytes after one request each, and takes no other. heads: gets the requests."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"

        def serve() -> None:
            for left, answer in enumerate(answers):
                sock, _ = listener.accept()
                if left == len(answers) - 1:
                    listener.close()
                with sock:
                    request = whole_request(sock)
                    if heads is not None:
                        heads.append(request)
                    sock.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield url
        thread.join(10)
        assert not thread.is_alive()


def http(status: int, body: object, *headers: str, kind: str = "application/json") -> bytes:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} X", f"Content-Type: {kind}", f"Content-Length: {len(content)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content


def refusal(message: str, code: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "x", "param": None, "code": code}}


def connection(url: str, key: str | None = None) -> ServerClient:
    secret = SecretStr(key) if key is not None else None
    return ServerClient(ServerAddress(url, "--url", secret, "JAN_SERVE_API_KEY"))


CASES = [
    (http(200, b"<html>"), 3, "answers, but not like this version of jan-serve (not JSON)", "--url"),
    (http(200, []), 3, "(not a JSON object)", "--url"),
    (http(404, b"nothing", kind="text/plain"), 3, "(HTTP status 404)", "--url"),
    (http(404, refusal("There is no such route.", "not_found")), 3, "(HTTP status 404)", "--url"),
    (http(404, refusal("The model `x` does not exist.", "model_not_found")), 2, "`x`", "jan-serve ls"),
    (http(400, refusal("temperature: too hot", "invalid_request")), 2, "temperature: too hot", ""),
    (http(401, refusal("Invalid API key", "invalid_api_key")), 2, "requires an API key", "JAN_SERVE_API_KEY"),
    (http(403, refusal("This host is not allowed.", "forbidden_host")), 2, "not allowed", ""),
    (http(503, refusal("The server stops.", "draining"), "Retry-After: 7"), 1, "stops", "in 7 s"),
    (http(429, refusal("Too many.", "overloaded")), 1, "Too many.", "jan-serve logs"),
    (http(503, refusal("Loading failed.", "model_failed")), 1, "Loading failed.", "jan-serve doctor"),
    (http(503, refusal("No memory.", "insufficient_memory")), 1, "No memory.", "--n-ctx"),
    (http(500, refusal("Failed.", "internal_error")), 1, "Failed.", "jan-serve logs"),
    (b"", 3, "broke the connection", "jan-serve ps"),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", 3, "broke the connection", "jan-serve ps"),
    (b"SSH-2.0-x\r\n", 3, "broke the connection", "jan-serve ps"),
]


@pytest.mark.parametrize(("answer", "status", "message", "next_step"), CASES)
def test_bad_answers(answer: bytes, status: int, message: str, next_step: str) -> None:
    with answering(answer) as url, connection(url) as server, pytest.raises(CommandError) as raised:
        server.get("/models")
    assert raised.value.status == status
    assert message in raised.value.message
    assert next_step in (raised.value.next_step or "")


def test_no_listener() -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{sock.getsockname()[1]}"
        with connection(url) as server, pytest.raises(CommandError) as raised:
            server.get("/models")
    assert raised.value.message == f"no server answers at {url} (Connection refused)"
    assert raised.value.status == 3
    assert "`jan-serve`" in (raised.value.next_step or "")


def test_a_wrong_key_is_named() -> None:
    refused = http(401, refusal("Invalid API key", "invalid_api_key"))
    with (
        answering(refused) as url,
        connection(url, "secret") as server,
        pytest.raises(CommandError) as raised,
    ):
        server.get("/models")
    assert "rejects the API key from JAN_SERVE_API_KEY" in raised.value.message
    assert "secret" not in raised.value.message


def events(body: bytes, kind: str = "text/event-stream") -> list[dict[str, Any]]:
    with answering(http(200, body, kind=kind)) as url, connection(url) as server:
        return list(server.events("/x", {}))


def test_events() -> None:
    text = "a\u2028b\x85c"
    body = b": ping\n\n" + f"data: {json.dumps({'t': text}, ensure_ascii=False)}\n\n".encode()
    body += b'data: {"n":\ndata: 1}\r\n\r\ndata: [DONE]\n\ndata: {"never": 1}\n\n'
    assert events(body) == [{"t": text}, {"n": 1}]


def test_a_failure_within_a_stream() -> None:
    body = (
        b'data: {"n": 1}\n\ndata: ' + json.dumps(refusal("It crashed.", "engine_crashed")).encode() + b"\n\n"
    )
    with pytest.raises(CommandError, match="It crashed"):
        events(body)
    with pytest.raises(CommandError, match="not an event stream"):
        events(b"{}", kind="application/json")


@pytest.mark.parametrize("split", range(1, 40, 3))
def test_events_at_every_split_point(split: int) -> None:
    from jan_serve.cli.client.server_client import _event_data  # pyright: ignore[reportPrivateUsage]

    body = 'data: {"t": "é"}\r\n\r\n: x\n\ndata: b\n\n'.encode()
    pieces = [body[at : at + split] for at in range(0, len(body), split)]
    assert list(_event_data(iter(pieces))) == [('{"t": "é"}', ""), ("b", "")]


def test_a_stream_is_taken_up_where_its_line_broke() -> None:
    cut = b'data: {"n": 1}\nid: a:0\n\ndata: {"n": 2}\nid: a:1\n\ndata: {"n"'
    head = b"HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\nContent-Length: 1000\r\n\r\n"
    rest = http(200, b'data: {"n": 3}\nid: a:2\n\ndata: [DONE]\n\n', kind="text/event-stream")
    heads: list[bytes] = []
    with answering(head + cut, rest, heads=heads) as url, connection(url) as server:
        assert [event["n"] for event in server.events("/x", {"a": 1})] == [1, 2, 3]
    first, second = (request.lower() for request in heads)
    assert b"last-event-id" not in first
    assert b"last-event-id: a:1\r\n" in second
    assert first.endswith(b'{"a":1}') and second.endswith(b'{"a":1}')


def test_a_stream_without_ids_is_not_asked_for_again() -> None:
    head = b"HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\nContent-Length: 1000\r\n\r\n"
    with (
        answering(head + b'data: {"n": 1}\n\n') as url,
        connection(url) as server,
        pytest.raises(CommandError, match="broke the connection"),
    ):
        list(server.events("/x", {}))


def test_a_configured_key_is_sent(run: Run, server: ServedApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAN_SERVE_API_KEY", "any")
    assert run("ps", "--url", server.url).status == 0


def test_no_server_is_exit_status_3(run: Run) -> None:
    for words in (("ps",), ("load", "x"), ("stop", "x"), ("tokenize", "x", "y"), ("embed", "x", "y")):
        answer = run(*words, "--url", "http://127.0.0.1:1")
        assert (answer.status, answer.out) == (3, ""), words
        assert "no server answers" in answer.err


def test_an_invalid_address(run: Run) -> None:
    answer = run("ps", "--url", "ftp://x")
    assert answer.status == 2
    assert "--url: 'ftp://x' must be an address" in answer.err
