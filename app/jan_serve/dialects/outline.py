"""What is known of a public protocol before its requests are parsed: enough for guards and for a proxy.

An outline needs no models, no settings and no wire types, so that both can import all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec
from starlette.types import Scope

from jan_serve.http.errors import ErrorRenderer, Problem

POST: Final = frozenset({"POST"})
READ: Final = frozenset({"GET"})

Row = dict[str, Any]


_ABSENT: Final = msgspec.Raw()


def members_reader(*names: str) -> Callable[[bytes], frozenset[str] | None]:
    """Makes a function that says which of these members a JSON object has; None for any other body.

    For a path that two protocols share. No value is decoded, and other members take no memory.
    """
    kind = msgspec.defstruct("Members", [(name, msgspec.Raw, _ABSENT) for name in names])
    decode = msgspec.json.Decoder(kind).decode

    def read(body: bytes) -> frozenset[str] | None:
        try:
            found = decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        return frozenset(name for name in names if getattr(found, name) is not _ABSENT)

    return read


class Route(msgspec.Struct, frozen=True):
    """A route that a proxy passes on to a node.

    pattern: a path, or a prefix that ends with `/*`. sticky: `keeps` answers have an id, and later requests for it go
    to the same node; `follows` such a request has the id in its path. migrates: one node may compute the prompt and
    another one the answer.
    """

    pattern: str
    methods: frozenset[str] = POST
    sticky: Literal["", "keeps", "follows"] = ""
    migrates: bool = False


class StreamErrors(msgspec.Struct, frozen=True):
    """The error at the end of a stream. marks: one of them must precede it, because it ends an event or a line."""

    render: Callable[[Problem], bytes]
    media_type: bytes = b"text/event-stream"
    marks: tuple[bytes, ...] = (b"\n\n", b"\r\n\r\n")


class ModelList(msgspec.Struct, frozen=True):
    """A list of models that a proxy merges from those of its nodes.

    member: of a node's body that has the rows, which are objects. name: of a row. rank: rows of a higher one come
    first, and of several rows for a model the first one counts. is_momentary: it tells what each node does now, so
    that all are asked; else only as many as have all models. query: for the nodes. body: of the rows and the query of
    a request; raises InvalidRequest. names: to look up in turn for a name in a path below; None if single models have
    no path.
    """

    path: str
    member: str
    name: str
    body: Callable[[list[Row], Mapping[str, str]], object]
    rank: Callable[[Row], Any] = lambda row: 0
    is_momentary: bool = False
    query: str = ""
    names: Callable[[str], Sequence[str]] | None = None


class Outline(msgspec.Struct, frozen=True):
    """A public protocol from outside.

    paths: each of its paths is one of these or below one; requests to others do not import it.
    errors: by path prefix. Elsewhere errors have the application's default body.
    rewrite_scope: changes a scope before any guard reads it, for requests that a header assigns to this protocol: a
    path set there decides the route, the guards' rules and the form of errors. It sees unchecked requests and must not
    read the body. body_path: the path whose protocol a body at a shared path has.
    open_paths: signs of life that need no key and that any page may read (GET).
    probe_paths: polled about the server; neither logged nor waited for by a drain.
    drain_paths: served while the server drains.
    greeting: what `GET /` answers to programs.
    upload_paths: prefixes whose bodies are files, of any type and size, unless a web page sends them.
    form_paths: whose bodies are forms with files.
    head_paths: prefixes below which routes answer HEAD themselves; elsewhere it is GET without the body.

    journal_paths: below them is what lies in the journal of one server, so that a proxy refuses it.
    forwarded: not there, on purpose: what changes one server (models, sleep, weights, aborting, its end), and what
    describes one. stream_errors: by path prefix. names: to look up in turn for a model's name in a request.
    prompt_members: of a body, in the order in which templates put them. cut_system: a system prompt without what a
    client changes in it with each request. inner_members: of a body, for which only a proxy may ask.
    """

    paths: tuple[str, ...] = ("",)
    errors: Mapping[str, ErrorRenderer] = msgspec.field(default_factory=dict[str, ErrorRenderer])
    rewrite_scope: Callable[[Scope], None] | None = None
    body_path: Callable[[str, bytes], str] = lambda path, body: path
    open_paths: tuple[str, ...] = ()
    probe_paths: tuple[str, ...] = ()
    drain_paths: tuple[str, ...] = ()
    greeting: str = ""
    upload_paths: tuple[str, ...] = ()
    form_paths: tuple[str, ...] = ()
    head_paths: tuple[str, ...] = ()
    journal_paths: tuple[str, ...] = ()
    forwarded: tuple[Route, ...] = ()
    stream_errors: Mapping[str, StreamErrors] = msgspec.field(default_factory=dict[str, StreamErrors])
    lists: tuple[ModelList, ...] = ()
    names: Callable[[str], Sequence[str]] = lambda name: (name,)
    prompt_members: tuple[str, ...] = ()
    cut_system: Callable[[str], str] = lambda text: text
    inner_members: tuple[str, ...] = ()


def routes(*patterns: str) -> tuple[Route, ...]:
    """Routes of POST without further facts."""
    return tuple(Route(pattern) for pattern in patterns)
