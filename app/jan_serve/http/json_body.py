"""Reads request bodies as strict JSON before FastAPI validates them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from types import NoneType
from typing import Any, cast, get_args

import msgspec
from fastapi.routing import APIRoute
from pydantic import AliasChoices, BaseModel
from pydantic.fields import FieldInfo
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


KnownFields = Mapping[str, "KnownFields | None"]
"""The names of fields, each with those of its object; None if it is no object, or one that takes any."""

IgnoredFields = Callable[[Mapping[str, Any], KnownFields], tuple[str, ...]]
"""The warnings of a body, given the fields of its route."""


class MemberNames(msgspec.Struct, frozen=True):
    """Annotates a field whose object has these members, where no model says so."""

    names: frozenset[str]


def _fields_of(model: object) -> KnownFields | None:
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        return None
    if model.model_config.get("extra") == "allow":
        return None
    known: dict[str, KnownFields | None] = {}
    for name, field in model.model_fields.items():
        members = _members_of(field)
        known[name] = members
        match field.validation_alias or field.alias:
            case str(alias):
                known[alias] = members
            case AliasChoices(choices=choices):
                known |= dict.fromkeys((choice for choice in choices if isinstance(choice, str)), members)
            case _:
                pass
    return known


def _members_of(field: FieldInfo) -> KnownFields | None:
    for note in field.metadata:
        if isinstance(note, MemberNames):
            return dict.fromkeys(note.names)
    kinds = [kind for kind in get_args(field.annotation) or (field.annotation,) if kind is not NoneType]
    return _fields_of(kinds[0]) if len(kinds) == 1 else None


class JsonRoute(APIRoute):
    """A route that reads its body as strict JSON before FastAPI validates it."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        takes_body = self.body_field is not None
        known = _fields_of(self.body_field.field_info.annotation) if self.body_field is not None else None

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
        """Check what a dialect limits further. Raises HttpError."""
