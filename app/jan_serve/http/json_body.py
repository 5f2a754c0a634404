"""Reads request bodies as strict JSON before FastAPI validates them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.http.strict_json import JsonReader


class JsonRequest(Request):
    """A request whose `json()` is strict."""

    async def json(self) -> Any:
        """Decodes once. Raises InvalidJson, and HttpError if the body breaks a limit while it is read."""
        if not hasattr(self, "_json"):
            reader: JsonReader = self.app.state.json_reader
            self._json = await reader.decode(await self.body())
        return self._json


class JsonRoute(APIRoute):
    """A route that reads its body as strict JSON before FastAPI validates it."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        takes_body = self.body_field is not None

        async def strict(request: Request) -> Response:
            request = JsonRequest(request.scope, request.receive)
            if takes_body:
                # Read here: FastAPI would replace exceptions of the reader by its own.
                self.check_body(await request.body())
                await request.json()
            try:
                return await handle(request)
            except RequestValidationError as error:
                raise self.refusal(error, await request.body() if takes_body else b"") from None

        return strict

    def check_body(self, body: bytes) -> None:
        """For dialects with additional limits. Raises HttpError."""

    def refusal(self, error: RequestValidationError, body: bytes) -> Exception:
        """The exception for a request that breaks the route's schema; dialects override it to name the position."""
        return error
