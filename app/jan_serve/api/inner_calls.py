"""Requests of the server to itself: the routes of the application without a socket and without guards.

For what was checked when it came: the key of a batch stands for its lines, and that of a chat for its answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from fastapi import FastAPI
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.types import Message, Scope

from jan_serve.core.caller import cache_salt, client, in_background
from jan_serve.core.transcript import Transcript, current
from jan_serve.http.errors import Envelopes
from jan_serve.http.lifecycle import Lifecycle
from jan_serve.http.request_record import RequestContext, RequestWatcher
from jan_serve.journal.batches import Batch, Line, Reply


class InnerCalls:
    """Lines of batches run as their owner's, in the background. `attach` comes first."""

    def attach(
        self,
        app: FastAPI,
        envelopes: Envelopes,
        rewrites: Sequence[Callable[[Scope], None]],
        watchers: Sequence[RequestWatcher],
    ) -> None:
        routes = ExceptionMiddleware(AsyncExitStackMiddleware(app.router), handlers=app.exception_handlers)
        self._app = app
        # A lifecycle of its own: the end of the server does not wait for these.
        self._inner = RequestContext(
            routes, envelopes=envelopes, lifecycle=Lifecycle(), rewrites=rewrites, watchers=watchers
        )

    async def ask(self, method: str, path: str) -> Reply:
        """The answer to a request of the current caller, without a body."""
        return await asyncio.create_task(self._answer(method, path))

    async def __call__(self, batch: Batch, line: Line, transcript: Transcript) -> Reply:
        """The answer to a line. For a task of its own, which is the owner's then. Cancelling it ends its work."""
        current.set(transcript)
        cache_salt.set(batch.owner)
        client.set(f"batches of {batch.owner}")
        in_background.set(True)
        return await self._answer("POST", line.path, line.body, batch.facts.trace)

    async def _answer(
        self, method: str, path: str, body: bytes = b"", trace: Mapping[str, str] = MappingProxyType({})
    ) -> Reply:
        """The answer to a call, for a task of its own: a request has a context."""
        status, headers, parts, is_read = 500, dict[bytes, bytes](), list[bytes](), False

        async def receive() -> Message:
            nonlocal is_read
            if is_read:
                await asyncio.Event().wait()  # such a client never leaves
            is_read = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers.update(message["headers"])
            else:
                parts.append(message.get("body", b""))

        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [
                (b"content-type", b"application/json"),
                (b"content-length", b"%d" % len(body)),
                *((name.encode(), value.encode()) for name, value in trace.items()),
            ],
            "client": None,
            "server": None,
            "app": self._app,
            "state": {},
        }
        await self._inner(scope, receive, send)
        return Reply(status, b"".join(parts), headers.get(b"x-request-id", b"").decode())
