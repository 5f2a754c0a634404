"""What the proxy reads in a request: enough to choose a node. The node gets the bytes unchanged. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, cast

import msgspec

from jan_serve.dialects.outline import Outline
from jan_serve.dialects.outlines import OUTLINES
from jan_serve.errors import InvalidRequest
from jan_serve.fleet.prefixes import NO_KEYS, PromptKeys, prompt_keys
from jan_serve.http.multipart import form_fields

MAX_MODEL: Final = 1024
_INNER: Final = tuple(name for outline in OUTLINES for name in outline.inner_members)
_ROUTED: Final = frozenset({"model", "stream"})
_TRUE: Final = frozenset({"true", "t", "yes", "y", "on", "1"})
_FALSE: Final = frozenset({"false", "f", "no", "n", "off", "0"})
"""Words for "false" in forms, and in the JSON of lax clients."""
_ESCAPED_LETTER: Final = re.compile(rb"\\u00[67][0-9a-fA-F]")
_encode = msgspec.json.Encoder().encode


class RequestFacts(msgspec.Struct, frozen=True):
    """model: None if the request names none. previous: the id of a response that this request continues."""

    body: dict[str, Any]
    model: str | None
    stream: bool
    previous: str | None


def read_facts(content: object, body: bytes) -> RequestFacts:
    """content: of the body, decoded. Raises InvalidRequest."""
    if not isinstance(content, dict):
        raise InvalidRequest("The request body must be a JSON object.")
    fields = cast(dict[str, Any], content)
    _check_unique(body)
    for name in _INNER:
        if fields.get(name):
            raise InvalidRequest(f"{name}: only the proxy may send this to a node", param=name)
    model = _checked_model(fields.get("model"))
    previous = fields.get("previous_response_id")
    return RequestFacts(
        fields, model, _streams(fields.get("stream")), previous if isinstance(previous, str) else None
    )


def read_form_facts(content_type: str, body: bytes) -> RequestFacts:
    """The facts of a form with a file. Raises InvalidRequest for no form, and for a name that occurs twice."""
    fields = [field for field in form_fields(content_type, body) if field.name in _ROUTED]
    _check_once([field.name for field in fields])
    found = {field.name: field.text() for field in fields}
    streams = found.get("stream", "").lower() in _TRUE
    return RequestFacts({}, _checked_model(found.get("model")), streams, None)


def keys_of(facts: RequestFacts, outline: Outline, salt: bytes) -> PromptKeys:
    """The keys of the prompt's prefixes. outline: of the request's protocol."""
    parts = list(_parts(facts.body, outline))
    return prompt_keys(salt, facts.model or "", parts) if parts else NO_KEYS


def _checked_model(model: object) -> str | None:
    if model is None or (isinstance(model, str) and 0 < len(model) <= MAX_MODEL):
        return model
    raise InvalidRequest(f"model: must be a text of 1 to {MAX_MODEL} characters", param="model")


def _streams(value: object) -> bool:
    if value is None or isinstance(value, bool):
        return bool(value)
    text = str(value).lower() if isinstance(value, str | int) else ""
    if text not in _TRUE | _FALSE:
        raise InvalidRequest("stream: must be true or false", param="stream")
    return text in _TRUE


def _parts(body: dict[str, Any], outline: Outline) -> Iterator[bytes]:
    for name in outline.prompt_members:
        value = body.get(name)
        match value:
            case None:
                continue
            case str():
                yield (outline.cut_system(value) if name == "system" else value).encode("utf-8", "replace")
            case list():
                for number, item in enumerate(cast(list[object], value)):
                    yield _item(item, outline.cut_system if number == 0 else None)
            case _:
                yield _encode(value)


def _item(item: object, cut_system: Callable[[str], str] | None) -> bytes:
    """A message, tool or part, without what changes although the prompt stays: cache marks, and what is cut."""
    fields = _without_mark(item)
    if not isinstance(item, dict):
        return _encode(item)
    content = fields.get("content")
    if isinstance(content, list):
        fields["content"] = [_without_mark(part) for part in cast(list[object], content)]
    elif cut_system is not None and isinstance(content, str) and fields.get("role") == "system":
        fields["content"] = cut_system(content)
    elif cut_system is not None and isinstance(fields.get("text"), str):
        fields["text"] = cut_system(fields["text"])
    return _encode(fields)


def _without_mark(part: object) -> Any:
    if not isinstance(part, dict):
        return part
    return {name: value for name, value in cast(dict[str, Any], part).items() if name != "cache_control"}


def _check_unique(body: bytes) -> None:
    """Names that decide about the way of a request may occur once: readers disagree about which one counts."""
    is_suspicious = any(body.count(b'"%b"' % name.encode()) > 1 for name in _ROUTED)
    if not is_suspicious and _ESCAPED_LETTER.search(body) is None:
        return
    # Only the outermost object counts; json hands it over last.
    outermost: list[tuple[str, Any]] = []

    def keep(pairs: list[tuple[str, Any]]) -> None:
        outermost[:] = pairs

    json.loads(body, object_pairs_hook=keep)
    _check_once([name for name, _ in outermost])


def _check_once(names: Sequence[str]) -> None:
    for name in _ROUTED:
        if names.count(name) > 1:
            raise InvalidRequest(f"{name}: occurs more than once in the request body", param=name)
