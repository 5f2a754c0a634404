"""A document holds one schema: its interned subschemas, and references between them. Nothing is fetched and no file is
opened: a reference that leaves the document is refused, unless the other document is there already and is put into the
schema first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, cast
from urllib.parse import unquote, urldefrag, urljoin

from jan_serve.constraint.json_schema.keywords import (
    ANNOTATIONS,
    ASSERTIONS,
    DROPPED,
    DYNAMIC_REFERENCES,
    LATEST_DRAFT,
    REFERENCES,
    SCHEMA_KEYWORDS,
    SCHEMA_LIST_KEYWORDS,
    SCHEMA_MAP_KEYWORDS,
    UNEVALUATED,
    declared_draft,
    known_keywords,
    meta_schema,
)
from jan_serve.constraint.limits import MAX_SCHEMA_DEPTH
from jan_serve.errors import InvalidSchema, UnsupportedSchema


def as_object(value: Any) -> dict[str, Any] | None:
    """The value where it is a JSON object."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def as_array(value: Any) -> list[Any] | None:
    """The value where it is a JSON array."""
    return cast("list[Any]", value) if isinstance(value, list) else None


def kind_of(value: Any) -> str:
    """The value's type, as messages name it."""
    names = {
        "NoneType": "null",
        "bool": "a boolean",
        "str": "a string",
        "int": "a number",
        "float": "a number",
    }
    return {**names, "list": "an array", "dict": "an object"}.get(
        value.__class__.__name__, "not a JSON value"
    )


def mentioned(value: Any, names: frozenset[str]) -> set[str]:
    """Those of the names that some object at any depth has a member of."""
    found: set[str] = set()
    todo = [value]
    while todo:
        value = todo.pop()
        if type(value) is dict:
            found |= names.intersection(cast("dict[str, Any]", value))
        todo += _held(value)
    return found


def _held(value: Any) -> Iterable[Any]:
    """The members or items of a value."""
    if type(value) is dict:
        return cast("dict[str, Any]", value).values()
    return cast("list[Any]", value) if type(value) is list else ()


_RECURSIVE: Final = ""
"""Stands for `$recursiveAnchor` among the dynamic anchors, none of which is empty."""


class Subschema:
    """A schema at its place in a document, which interns it: identity is equality. scope: the base URIs of the
    resources on the way here that dynamic references may mean, the outermost first."""

    __slots__ = ("base", "negative", "parent", "positive", "schema", "scope", "token")

    def __init__(
        self, schema: Any, base: str, parent: Subschema | None, token: str, scope: tuple[str, ...] = ()
    ) -> None:
        self.schema = schema
        self.base = base
        self.parent = parent
        self.token = token
        self.scope = scope
        self.positive = Term(self, True)
        self.negative = Term(self, False)

    @property
    def pointer(self) -> str:
        """The JSON Pointer (RFC 6901) of the place where the subschema was first met."""
        tokens: list[str] = []
        subschema: Subschema | None = self
        while subschema is not None and subschema.token:
            tokens.append(subschema.token)
            subschema = subschema.parent
        return "".join(reversed(tokens))

    def is_trivial(self) -> bool:
        schema = as_object(self.schema)
        return self.schema is True or (schema is not None and ASSERTIONS.isdisjoint(schema))


class Term:
    """A subschema that has to hold, or has to fail."""

    __slots__ = ("positive", "subschema")

    def __init__(self, subschema: Subschema, positive: bool) -> None:
        self.subschema = subschema
        self.positive = positive

    @property
    def opposite(self) -> Term:
        """The same subschema with the other sign."""
        return self.subschema.negative if self.positive else self.subschema.positive


def escape_token(token: str) -> str:
    """One reference token of a JSON Pointer, with its slash."""
    return "/" + token.replace("~", "~0").replace("/", "~1")


def subschemas(schema: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object that is a schema, with its pointer, in the order of the document."""
    todo: list[tuple[str, Any]] = [("", schema)]
    while todo:
        pointer, node = todo.pop()
        members = as_object(node)
        if members is None:
            continue
        yield pointer, members
        below: list[tuple[str, Any]] = []
        for keyword, value in members.items():
            place = pointer + escape_token(keyword)
            items, named = as_array(value), as_object(value)
            if keyword in SCHEMA_LIST_KEYWORDS and items is not None:
                below += [(f"{place}/{number}", item) for number, item in enumerate(items)]
            elif keyword in SCHEMA_MAP_KEYWORDS and named is not None:
                below += [(place + escape_token(name), item) for name, item in named.items()]
            elif keyword in SCHEMA_KEYWORDS:
                below.append((place, value))
        todo += reversed(below)


class Document:
    """The root schema with its drafts, identifiers and interned subschemas."""

    def __init__(self, root: Any) -> None:
        _check_depth(root)
        top = as_object(root) or {}
        declared = declared_draft(top.get("$schema"))
        self.draft = declared or LATEST_DRAFT
        self._declared = "$schema" in top
        self.names_draft = declared is not None
        self._raw = root
        self.id_key = "id" if self.draft <= 4 else "$id"
        self._interned: dict[tuple[int, str, tuple[str, ...]], Subschema] = {}
        self._contents: dict[object, int] = {}
        self._content_of: dict[int, int] = {}
        # What has an identifier or an anchor: its schema, the base URI around it, and its pointer.
        self._resources: dict[str, tuple[Any, str, str]] | None = None
        self._anchors: dict[tuple[str, str], tuple[Any, str, str]] = {}
        # The dynamic anchors of each resource, by its base URI; those that several resources have.
        self._dynamic: dict[str, set[str]] = {}
        self._ambiguous: set[tuple[str, str]] = set()
        self._mentioned = mentioned(root, frozenset((*DYNAMIC_REFERENCES, *UNEVALUATED)))
        if self.mentions(DYNAMIC_REFERENCES):
            self._index()
        self._kept: list[Any] = []
        self.false = Subschema(False, "", None, "")
        self.root = self._subschema(root, "", None, "", ())

    def mentions(self, keywords: Iterable[str]) -> bool:
        """Whether an object of the document, at any depth, has one of these keywords of DYNAMIC_REFERENCES and
        UNEVALUATED."""
        return not self._mentioned.isdisjoint(keywords)

    def _subschema(
        self, schema: Any, base: str, parent: Subschema | None, token: str, scope: tuple[str, ...]
    ) -> Subschema:
        """base: around the schema. scope: of what leads here."""
        base = self.base_of(schema, base)
        anchors = self._dynamic.get(base)
        if anchors and not anchors <= set[str]().union(*(self._dynamic[outer] for outer in scope)):
            scope = (*scope, base)
        key = (self._content(schema), base, scope)
        known = self._interned.get(key)
        if known is not None:
            return known
        members = as_object(schema) if self.names_draft else None
        own = schema if members is None else known_keywords(members, self.draft)
        subschema = Subschema(own, base, parent, token, scope)
        if isinstance(schema, dict):
            self._interned[key] = subschema
        elif not isinstance(schema, bool):
            reason = f"a schema is an object or a boolean, not {kind_of(schema)}"
            raise InvalidSchema(subschema.pointer, reason)
        return subschema

    def _content(self, schema: Any) -> int:
        """The number of all that a schema means: schemas that say the same, wherever they stand, have one."""
        known = self._content_of.get(id(schema))
        if known is not None:
            return known
        members = as_object(schema)
        content: object = repr(schema)
        if members is not None:
            said = (item for item in members.items() if item[0] not in ANNOTATIONS)
            content = tuple([(keyword, self._content_below(keyword, value)) for keyword, value in said])
        number = self._contents.setdefault(content, len(self._contents))
        return self._content_of.setdefault(id(schema), number)

    def _content_below(self, keyword: str, value: Any) -> object:
        if keyword in SCHEMA_MAP_KEYWORDS and type(value) is dict:
            parts = cast("dict[str, Any]", value)
            return tuple([(name, self._content(part)) for name, part in parts.items()])
        if keyword in SCHEMA_LIST_KEYWORDS and type(value) is list:
            return tuple([self._content(part) for part in cast("list[Any]", value)])
        return self._content(value) if keyword in SCHEMA_KEYWORDS else repr(value)

    def base_of(self, schema: Any, base: str) -> str:
        """The base URI inside `schema`. Up to draft 7 a `$ref` hides the identifier beside it."""
        members = as_object(schema) or {}
        own = members.get(self.id_key)
        if not isinstance(own, str) or own.startswith("#") or (self.draft <= 7 and "$ref" in members):
            return base
        if base and "$ref" in members and not self._declared:
            reason = "beside $ref its meaning depends on the draft, and $schema names none"
            raise UnsupportedSchema("", self.id_key, reason)
        return urldefrag(urljoin(base, own))[0]

    def child(self, subschema: Subschema, keyword: str, *path: str | int) -> Subschema:
        """The subschema under `keyword` and the given member name or index."""
        schema = subschema.schema[keyword]
        token = "/" + keyword
        for step in path:
            schema = schema[step]
            token += escape_token(str(step))
        return self._subschema(schema, subschema.base, subschema, token, subschema.scope)

    def check_negated(self, subschema: Subschema) -> None:
        """Refuse to negate what only older drafts have where no draft is named: it may mean nothing."""
        foreign = DROPPED.intersection(subschema.schema) if not self.names_draft else ()
        if foreign:
            reason = "under `not`, `oneOf` or `if` its meaning depends on the draft, and $schema names none"
            raise UnsupportedSchema(subschema.pointer, min(foreign), reason)

    def constant(self, subschema: Subschema, value: Any) -> Subschema:
        """A subschema that is not in the document: the schema that only `value` satisfies."""
        schema = {"const": value}
        self._kept.append(schema)
        return Subschema(schema, subschema.base, subschema, "/const")

    def resolve(self, subschema: Subschema, keyword: str) -> Subschema:
        """The subschema that the reference keyword of `subschema` names. Raises UnsupportedSchema or InvalidSchema."""
        ref = subschema.schema[keyword]
        if not isinstance(ref, str):
            raise InvalidSchema(f"{subschema.pointer}/{keyword}", "a reference is a string")
        target, fragment = _target(subschema.base, ref)
        if keyword in DYNAMIC_REFERENCES:
            target = self._outermost(subschema, keyword, target, fragment)
        if target == "" and (fragment == "" or fragment.startswith("/")):
            return self._walk(subschema, keyword, (self._raw, "", ""), fragment)
        index = self._index()
        if target not in index and (meta := meta_schema(target)) is not None:
            index[target] = meta, "", target
        resource = index.get(target)
        if resource is None:
            reason = f"{ref[:200]!r} is outside this document, and nothing is fetched"
            raise UnsupportedSchema(subschema.pointer, keyword, reason)
        if fragment and not fragment.startswith("/"):
            found = self._anchors.get((target, fragment))
            if found is None:
                reason = f"no anchor {fragment[:100]!r} in this document"
                raise InvalidSchema(f"{subschema.pointer}/{keyword}", reason)
            schema, base, place = found
            return self._subschema(schema, base, None, place, subschema.scope)
        return self._walk(subschema, keyword, resource, fragment)

    def outside(self) -> Iterator[str]:
        """The URIs of the resources that references name and that are not in this document."""
        index = self._index()
        for schema, _, base, _ in self._subschemas():
            for keyword in REFERENCES:
                ref = schema.get(keyword)
                if isinstance(ref, str) and (target := _target(base, ref)[0]) not in index:
                    yield target

    def _outermost(self, subschema: Subschema, keyword: str, target: str, fragment: str) -> str:
        """The resource that a dynamic reference to `target` means: of those on the way here, the first one that has the
        same dynamic anchor, if `target` has it."""
        anchor = _RECURSIVE if keyword == "$recursiveRef" else fragment
        if anchor not in self._dynamic.get(target, ()):
            return target
        found = next((base for base in subschema.scope if anchor in self._dynamic[base]), target)
        if (found, anchor) in self._ambiguous:
            reason = "its $dynamicAnchor is in one resource twice"
            raise InvalidSchema(f"{subschema.pointer}/{keyword}", reason)
        return found

    def _walk(self, origin: Subschema, keyword: str, start: tuple[Any, str, str], pointer: str) -> Subschema:
        value, base, _ = start
        place = ""
        for raw in pointer.split("/")[1:]:
            base = self.base_of(value, base)
            token = raw.replace("~1", "/").replace("~0", "~")
            members, items = as_object(value), as_array(value)
            if members is not None and token in members:
                value = members[token]
            elif items is not None and token.isascii() and token.isdigit() and int(token[:9]) < len(items):
                value = items[int(token[:9])]
            else:
                raise InvalidSchema(f"{origin.pointer}/{keyword}", f"nothing is at {pointer[:200]!r}")
            place += escape_token(token)
        return self._subschema(value, base, None, place, origin.scope)

    def _index(self) -> dict[str, tuple[Any, str, str]]:
        """Identifiers and anchors, found once, in places where a schema is expected."""
        if self._resources is None:
            self._resources = {"": (self._raw, "", "")}
            for schema, around, base, pointer in self._subschemas():
                self._register(schema, around, base, pointer)
            several = Counter(anchor for anchors in self._dynamic.values() for anchor in anchors)
            for base, anchors in self._dynamic.items():
                self._dynamic[base] = {anchor for anchor in anchors if several[anchor] > 1}
        return self._resources

    def _subschemas(self) -> Iterator[tuple[dict[str, Any], str, str, str]]:
        """Every object schema in places where a schema is expected: the base URI around it, its own, its pointer."""
        bases: dict[str, str] = {}
        for pointer, members in subschemas(self._raw):
            outer = (pointer.rsplit("/", steps)[0] for steps in range(1, pointer.count("/") + 1))
            around = next((bases[place] for place in outer if place in bases), "")
            bases[pointer] = self.base_of(members, around)
            yield members, around, bases[pointer], pointer

    def _register(self, schema: dict[str, Any], around: str, base: str, pointer: str) -> None:
        assert self._resources is not None
        place = (schema, around, pointer)
        is_resource = isinstance(schema.get(self.id_key), str)
        if is_resource:
            self._resources.setdefault(base, place)
        for key in ("id", "$id", "$anchor", "$dynamicAnchor"):
            name = schema.get(key)
            if isinstance(name, str) and (key[-1] == "r" or name.startswith("#")):
                self._anchors.setdefault((base, name[1:] if key[-1] == "d" else name), place)
        name = schema.get("$dynamicAnchor")
        if isinstance(name, str) and name != _RECURSIVE:
            anchors = self._dynamic.setdefault(base, set())
            if name in anchors:
                self._ambiguous.add((base, name))
            anchors.add(name)
        if schema.get("$recursiveAnchor") is True and (is_resource or not pointer):
            self._dynamic.setdefault(base, set()).add(_RECURSIVE)


def _target(base: str, ref: str) -> tuple[str, str]:
    """The URI of the resource that a reference names, and its fragment."""
    # urljoin knows no `urn:` bases, and a fragment keeps the base whatever it is.
    target, fragment = urldefrag(base + ref if ref.startswith("#") else urljoin(base, ref))
    return target, unquote(fragment)


def _check_depth(schema: Any) -> None:
    """Refuse schemas that would exhaust the stack; nesting counts objects and lists."""
    level: list[Any] = [schema]
    for _ in range(MAX_SCHEMA_DEPTH):
        level = [below for value in level for below in _held(value)]
        if not level:
            return
    raise InvalidSchema("", f"nested deeper than {MAX_SCHEMA_DEPTH} levels")


def bundled(schema: Any, documents: Mapping[str, Any]) -> Any:
    """The schema with those of the documents that it needs, in its `$defs`; the schema itself where it needs none.
    documents: schemas by URI. One of another draft than the schema's is not used; a schema that names no draft has
    that of the first one that names any. What is wrong with a schema is left to its translation."""
    members = as_object(schema)
    if members is None:
        return schema
    added: dict[str, Any] = {}
    try:
        while True:
            document = Document(_with(members, added))
            found = [uri for uri in document.outside() if uri in documents and uri not in added]
            named = ((as_object(documents[uri]) or {}).get("$schema") for uri in found)
            draft = next((uri for uri in named if declared_draft(uri) is not None), None)
            if draft is not None and "$schema" not in members:
                members = {"$schema": draft, **members}
                continue
            usable = {
                uri: _named(uri, documents[uri], document)
                for uri in found
                if declared_draft((as_object(documents[uri]) or {}).get("$schema")) in (None, document.draft)
            }
            if not usable:
                return _with(members, added)
            added |= usable
    except (InvalidSchema, UnsupportedSchema):
        return schema


def _with(members: dict[str, Any], added: dict[str, Any]) -> dict[str, Any]:
    if not added:
        return members
    keyword = "$defs" if "$defs" in members or "definitions" not in members else "definitions"
    own = as_object(members.get(keyword, {}))
    if own is None:
        raise InvalidSchema(f"/{keyword}", "must be an object")
    return {**members, keyword: {**own, **{f"document {uri}": document for uri, document in added.items()}}}


def _named(uri: str, schema: Any, document: Document) -> Any:
    """The schema with `uri` as its identifier; where it has another one, a reference to it."""
    members = as_object(schema)
    if members is None:
        return {document.id_key: uri, "allOf": [schema]}
    if document.base_of(schema, uri) == uri:
        return {**members, document.id_key: uri}
    return {document.id_key: uri, "allOf": [members]}
