"""Building blocks of the dialects' pydantic models: strict JSON types, ranges whose message names both ends, caps.

A value that breaks a type or range is a schema violation. A cap is a limit of this server: it is checked before any
other work on the value, and raises InvalidRequest.
"""

from __future__ import annotations

from collections.abc import Sized
from typing import Annotated, Any, Final, cast

import msgspec
from pydantic import BaseModel, BeforeValidator, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from jan_serve.errors import InvalidRequest

MAX_INT: Final = (1 << 31) - 1
"""Maximum of llama.cpp's int32 parameters."""


class WireModel(BaseModel):
    """A JSON object of a request. No type is converted to another; unknown members are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore", protected_namespaces=())


class LaxModel(WireModel):
    """A JSON object of a protocol that reads `"true"` as a boolean and `"0.5"` as a number, as pydantic does."""

    model_config = ConfigDict(strict=False)


def _integral(value: object) -> object:
    """JSON has one number type, so 16.0 is an integer."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def type_of(value: object) -> str | None:
    """The member `type` of an object or model; None if it is not a string."""
    if isinstance(value, dict):
        kind: object = cast(dict[str, Any], value).get("type")
    else:
        kind = getattr(value, "type", None)
    return kind if isinstance(kind, str) else None


class FirstError(msgspec.Struct, frozen=True):
    """Makes a list report only its first wrong item, so that a hostile list costs one error.

    Like pydantic's FailFast, which does not work inside a union.
    """

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        if schema["type"] == "list":
            schema["fail_fast"] = True
        return schema


Int = Annotated[int, BeforeValidator(_integral)]
Strings = Annotated[list[str], FirstError()]
Ints = Annotated[list[Int], FirstError()]


def _exact(bound: float) -> str:
    return str(bound) if isinstance(bound, int) else f"{bound:g}"


class Between(msgspec.Struct, frozen=True):
    """A closed range for a number; None is an open end. The message names both ends."""

    low: float
    high: float | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        json_schema = handler(schema)
        json_schema["minimum"] = self.low
        if self.high is not None:
            json_schema["maximum"] = self.high
        return json_schema

    def _check(self, value: float) -> float:
        if value < self.low or (self.high is not None and value > self.high):
            raise PydanticCustomError("out_of_range", "{text}", {"text": f"must be {self.words}"})
        return value

    @property
    def words(self) -> str:
        if self.high is None:
            return f"{_exact(self.low)} or more"
        return f"from {_exact(self.low)} to {_exact(self.high)}"


class AtMost(msgspec.Struct, frozen=True):
    """A cap on the number of items of a list or object; other values pass. Raises InvalidRequest."""

    items: int
    field: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._check, handler(source))

    def _check(self, value: object) -> object:
        if isinstance(value, list | dict):
            check_count(cast(Sized, value), self.items, self.field)
            return cast(object, value)
        return value


def wrong(field: str, text: str) -> InvalidRequest:
    """The error about a field. text: the rest of a sentence that begins with its name."""
    return InvalidRequest(f"{field}: {text}", param=field)


def check_count(value: Sized, limit: int, field: str) -> None:
    """Raises InvalidRequest for more than `limit` items."""
    if len(value) > limit:
        raise wrong(field, f"has {len(value)} items, the limit is {limit}")


Inputs = list[str | tuple[int, ...]]
"""Each is a text or token ids."""


class TextsOrTokens(msgspec.Struct, frozen=True):
    """Reads a text, a list of texts, token ids, or a list of token id lists, as in OpenAI's `prompt`, as `Inputs`.

    Checks every item once and reports one error. An empty list, or one beyond the caps, raises InvalidRequest.
    texts, tokens: caps on the items of the outer list and of an id list.
    """

    field: str
    texts: int
    tokens: int

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        form = handler.generate_schema(str | list[str] | list[int] | list[list[int]])
        return core_schema.no_info_plain_validator_function(self.read, json_schema_input_schema=form)

    def read(self, value: object) -> Inputs:
        """Raises PydanticCustomError for any other value."""
        if isinstance(value, str):
            return [value]
        if not isinstance(value, list):
            raise self._wrong_type()
        items = cast(list[object], value)
        self._refuse_empty(items)
        if all(isinstance(item, str) for item in items):
            check_count(items, self.texts, self.field)
            return cast(Inputs, items)
        if isinstance(items[0], list):
            check_count(items, self.texts, self.field)
            return [self._ids(item) for item in items]
        return [self._ids(items)]

    def _ids(self, value: object) -> tuple[int, ...]:
        if not isinstance(value, list):
            raise self._wrong_type()
        items = cast(list[object], value)
        self._refuse_empty(items)
        check_count(items, self.tokens, self.field)
        ids: list[int] = []
        for item in map(_integral, items):
            if not isinstance(item, int) or isinstance(item, bool):
                raise self._wrong_type()
            if not 0 <= item <= MAX_INT:
                raise wrong(self.field, f"{str(item)[:20]} is not a token id")
            ids.append(item)
        return tuple(ids)

    def _refuse_empty(self, items: list[object]) -> None:
        if not items:
            raise wrong(self.field, "an empty list has nothing to work on")

    def _wrong_type(self) -> PydanticCustomError:
        return PydanticCustomError(
            "texts_or_tokens", "must be a text, a list of texts, a list of token ids, or a list of such lists"
        )
