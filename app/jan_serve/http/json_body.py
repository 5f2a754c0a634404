"""Reads request bodies as strict JSON before FastAPI validates them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any, cast

from fastapi.routing import APIRoute
from pydantic import AliasChoices, BaseModel
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.http.request_record import record_of
from jan_serve.http.strict_json import JsonReader


class JsonRequest(Request):
    """A request whose `json()` is strict."""

    async def json(self) -> Any:
        """Decodes once. Raises InvalidJson, and HttpError if the body breaks a limit while it is read."""
        if not hasattr(self, "_json"):
            reader: JsonReader = self.app.state.json_reader
            self._json = await reader.decode(await self.body())
        return self._json


IgnoredFields = Callable[[Mapping[str, Any], Collection[str]], tuple[str, ...]]
"""The warnings of a body, given the fields of its route."""


def _names_of(model: object) -> frozenset[str] | None:
    """The names of a model's fields in a body; None if there is no model, or it takes any."""
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        return None
    if model.model_config.get("extra") == "allow":
        return None
    names = set(model.model_fields)
    for field in model.model_fields.values():
        match field.validation_alias or field.alias:
            case str(alias):
                names.add(alias)
            case AliasChoices(choices=choices):
                names.update(choice for choice in choices if isinstance(choice, str))
            case _:
                pass
    return frozenset(names)


class JsonRoute(APIRoute):
    """A route that reads its body as strict JSON before FastAPI validates it."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        takes_body = self.body_field is not None
        known = _names_of(self.body_field.field_info.annotation) if self.body_field is not None else None

        async def strict(request: Request) -> Response:
            request = JsonRequest(request.scope, request.receive)
            if takes_body:
                # Read here: FastAPI would replace exceptions of the reader by its own.
                self.check_body(await request.body())
                body = await request.json()
                if known is not None and isinstance(body, dict):
                    ignored: IgnoredFields = request.app.state.ignored_fields
                    record_of(request.scope).ignored = ignored(cast(dict[str, Any], body), known)
            return await handle(request)

        return strict

    def check_body(self, body: bytes) -> None:
        """For dialects with additional limits. Raises HttpError."""
