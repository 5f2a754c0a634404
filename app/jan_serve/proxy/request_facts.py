"""What the proxy reads in a request to choose a node, and which headers go on to it and come back. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from jan_serve.dialects.outline import Outline
from jan_serve.dialects.outlines import OUTLINES
from jan_serve.errors import InvalidRequest
from jan_serve.fleet.prefixes import NO_KEYS, PromptKeys, prompt_keys
from jan_serve.http.guards.auth import CALLER
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


HOPS: Final = b"x-jan-serve-hops"
NODE: Final = b"x-jan-serve-node"
MAX_RETRY_AFTER_S: Final = 3600

Headers = list[tuple[bytes, bytes]]

# RFC 9110, section 7.6.1
_HOP_BY_HOP: Final = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding"
    b" upgrade".split()
)
# The client's key is for the proxy, which has checked the origin of the request too.
_NOT_TO_NODES: Final = _HOP_BY_HOP | frozenset(
    b"host content-length expect authorization x-api-key api-key x-goog-api-key cookie origin referer forwarded"
    b" x-real-ip x-forwarded-for x-forwarded-host x-forwarded-proto x-jan-serve-hops x-jan-serve-caller"
    b" x-jan-serve-transcript".split()
)
_NOT_TO_CLIENTS: Final = _HOP_BY_HOP | frozenset(
    b"set-cookie server date alt-svc strict-transport-security x-jan-serve-node x-jan-serve-records".split()
)


_CONTEXT: Final = frozenset({b"traceparent", b"tracestate"})


def to_node(
    headers: Iterable[tuple[bytes, bytes]],
    client: str | None,
    hops: int,
    key: str | None,
    caller: str = "",
    context: Mapping[str, str] = {},
) -> Headers:
    """client: the address that the request came from. key: of the node. caller: whose key the request had, where they
    are several: the node keeps their caches and answers apart, though all requests have its own key. context: of the
    trace, in place of the client's."""
    named = _named_by_connection(headers) | _CONTEXT if context else _named_by_connection(headers)
    passed = [
        (name, value)
        for name, value in headers
        if name not in _NOT_TO_NODES and not name.startswith(b"sec-") and name not in named
    ]
    passed.append((HOPS, b"%d" % hops))
    passed.extend((name.encode(), value.encode("latin-1")) for name, value in context.items())
    if caller:
        passed.append((CALLER, caller.encode()))
    if client is not None:
        passed.append((b"x-forwarded-for", client.encode("ascii", "replace")))
    return passed if key is None else [*passed, (b"authorization", b"Bearer " + key.encode())]


def to_client(headers: Iterable[tuple[bytes, bytes]], node: str) -> Headers:
    named = _named_by_connection(headers)
    passed = [
        (name, _capped(value) if name == b"retry-after" else value)
        for name, value in headers
        if name not in _NOT_TO_CLIENTS and not name.startswith(b"access-control-") and name not in named
    ]
    return [*passed, (NODE, node.encode("ascii", "replace"))]


def hops_of(headers: Iterable[tuple[bytes, bytes]]) -> int:
    """How many proxies the request went through; a value that no proxy writes counts as many."""
    values = [value for name, value in headers if name == HOPS]
    if not values:
        return 0
    return int(values[0]) if len(values) == 1 and values[0].isdigit() and len(values[0]) < 4 else 1000


def _named_by_connection(headers: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    return frozenset(
        word.strip().lower() for name, value in headers if name == b"connection" for word in value.split(b",")
    )


def _capped(value: bytes) -> bytes:
    return b"%d" % MAX_RETRY_AFTER_S if value.isdigit() and int(value[:20]) > MAX_RETRY_AFTER_S else value
