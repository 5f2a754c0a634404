"""One schema document: its subschemas as interned nodes, and references between them.

Nothing is fetched and no file is opened: a reference that leaves the document is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast
from urllib.parse import unquote, urldefrag, urljoin

from jan_serve.errors import InvalidSchema, UnsupportedSchema
from jan_serve.grammar.json_schema.json_value import as_array, as_object, kind_of
from jan_serve.grammar.json_schema.keywords import (
    ASSERTIONS,
    DROPPED,
    SCHEMA_KEYWORDS,
    SCHEMA_LIST_KEYWORDS,
    SCHEMA_MAP_KEYWORDS,
    declared_draft,
    draft_of,
    known_keywords,
)
from jan_serve.grammar.limits import MAX_SCHEMA_DEPTH


class Node:
    """A subschema at its place. Nodes are interned per document, so identity is equality."""

    __slots__ = ("base", "negative", "parent", "positive", "schema", "token")

    def __init__(self, schema: Any, base: str, parent: Node | None, token: str) -> None:
        self.schema = schema
        self.base = base
        self.parent = parent
        self.token = token
        self.positive = Term(self, True)
        self.negative = Term(self, False)

    @property
    def pointer(self) -> str:
        """The JSON Pointer (RFC 6901) of the place where the node was first met."""
        tokens: list[str] = []
        node: Node | None = self
        while node is not None and node.token:
            tokens.append(node.token)
            node = node.parent
        return "".join(reversed(tokens))

    def is_trivial(self) -> bool:
        schema = as_object(self.schema)
        return self.schema is True or (schema is not None and ASSERTIONS.isdisjoint(schema))


class Term:
    """A node that has to hold, or has to fail."""

    __slots__ = ("node", "positive")

    def __init__(self, node: Node, positive: bool) -> None:
        self.node = node
        self.positive = positive

    @property
    def opposite(self) -> Term:
        """The same node with the other sign."""
        return self.node.negative if self.positive else self.node.positive


def escape_token(token: str) -> str:
    """One reference token of a JSON Pointer, with its slash."""
    return "/" + token.replace("~", "~0").replace("/", "~1")


class Document:
    """The root schema with its drafts, identifiers and interned nodes."""

    def __init__(self, root: Any) -> None:
        _check_depth(root)
        top = as_object(root) or {}
        self.draft = draft_of(top.get("$schema"))
        self._declared = "$schema" in top
        self._strict = declared_draft(top.get("$schema")) is not None
        self._raw = root
        self._id_key = "id" if self.draft <= 4 else "$id"
        self._nodes: dict[tuple[int, str], Node] = {}
        self._resources: dict[str, tuple[Any, str]] | None = None
        self._anchors: dict[tuple[str, str], tuple[Any, str]] = {}
        self._dynamic: dict[str, int] = {}
        self._recursive_anchor = False
        self._kept: list[Any] = []
        self.false = Node(False, "", None, "")
        self.root = self._node(root, "", None, "")

    def _node(self, schema: Any, base: str, parent: Node | None, token: str) -> Node:
        base = self._base_of(schema, base)
        key = (id(schema), base)
        node = self._nodes.get(key)
        if node is None or isinstance(schema, bool):
            members = as_object(schema) if self._strict else None
            own = schema if members is None else known_keywords(members, self.draft)
            node = Node(own, base, parent, token)
            if not isinstance(schema, dict | bool):
                raise InvalidSchema(
                    node.pointer, f"a schema is an object or a boolean, not {kind_of(schema)}"
                )
            if isinstance(schema, dict):
                self._nodes[key] = node
        return node

    def _base_of(self, schema: Any, base: str) -> str:
        """The base URI inside `schema`. Up to draft 7 a `$ref` hides the identifier beside it."""
        members = as_object(schema) or {}
        own = members.get(self._id_key)
        if not isinstance(own, str) or own.startswith("#") or (self.draft <= 7 and "$ref" in members):
            return base
        if base and "$ref" in members and not self._declared:
            reason = "beside $ref its meaning depends on the draft, and $schema names none"
            raise UnsupportedSchema("", self._id_key, reason)
        return urldefrag(urljoin(base, own))[0]

    def child(self, node: Node, keyword: str, *path: str | int) -> Node:
        """The subschema under `keyword` and the given member name or index."""
        schema = node.schema[keyword]
        token = "/" + keyword
        for step in path:
            schema = schema[step]
            token += escape_token(str(step))
        return self._node(schema, node.base, node, token)

    def check_negated(self, node: Node) -> None:
        """Refuse to negate what only older drafts have where no draft is named: it may mean nothing."""
        foreign = DROPPED.intersection(node.schema) if not self._strict else ()
        if foreign:
            reason = "under `not`, `oneOf` or `if` its meaning depends on the draft, and $schema names none"
            raise UnsupportedSchema(node.pointer, min(foreign), reason)

    def constant(self, node: Node, value: Any) -> Node:
        """A node that is not in the document: the schema that only `value` satisfies."""
        schema = {"const": value}
        self._kept.append(schema)
        return Node(schema, node.base, node, "/const")

    def resolve(self, node: Node, keyword: str) -> Node:
        """The node that the reference keyword of `node` names. Raises UnsupportedSchema or InvalidSchema."""
        ref = node.schema[keyword]
        if not isinstance(ref, str):
            raise InvalidSchema(f"{node.pointer}/{keyword}", "a reference is a string")
        if keyword == "$recursiveRef":
            self._index()
            if self._recursive_anchor:
                raise UnsupportedSchema(
                    node.pointer, keyword, "$recursiveAnchor makes it depend on the caller"
                )
        # urljoin knows no `urn:` bases, and a fragment keeps the base whatever it is.
        target, fragment = urldefrag(node.base + ref if ref.startswith("#") else urljoin(node.base, ref))
        fragment = unquote(fragment)
        if keyword == "$dynamicRef":
            self._index()
            if self._dynamic.get(fragment, 0) > 1:
                raise UnsupportedSchema(node.pointer, keyword, "more than one $dynamicAnchor has this name")
        if target == "" and (fragment == "" or fragment.startswith("/")):
            return self._walk(node, keyword, self._raw, "", fragment)
        resource = self._index().get(target)
        if resource is None:
            raise UnsupportedSchema(
                node.pointer, keyword, f"{ref[:200]!r} is outside this document, and nothing is fetched"
            )
        if fragment and not fragment.startswith("/"):
            found = self._anchors.get((target, fragment))
            if found is None:
                raise InvalidSchema(
                    f"{node.pointer}/{keyword}", f"no anchor {fragment[:100]!r} in this document"
                )
            return self._node(found[0], target, None, found[1])
        return self._walk(node, keyword, resource[0], target, fragment)

    def _walk(self, origin: Node, keyword: str, start: Any, base: str, pointer: str) -> Node:
        value, place = start, ""
        for raw in pointer.split("/")[1:]:
            token = raw.replace("~1", "/").replace("~0", "~")
            members, items = as_object(value), as_array(value)
            if members is not None and token in members:
                value = members[token]
            elif items is not None and token.isascii() and token.isdigit() and int(token[:9]) < len(items):
                value = items[int(token[:9])]
            else:
                raise InvalidSchema(f"{origin.pointer}/{keyword}", f"nothing is at {pointer[:200]!r}")
            place += escape_token(token)
            if place != pointer:
                base = self._base_of(value, base)
        return self._node(value, base, None, place)

    def _index(self) -> dict[str, tuple[Any, str]]:
        """Identifiers and anchors, found once, in places where a schema is expected."""
        if self._resources is None:
            self._resources = {"": (self._raw, "")}
            for schema, base, pointer in self._subschemas(self._raw):
                self._register(schema, base, pointer)
        return self._resources

    def _subschemas(self, root: Any) -> Iterator[tuple[dict[str, Any], str, str]]:
        """Every object schema with its base URI and pointer, in places where a schema is expected."""
        todo: list[tuple[Any, str, str]] = [(root, "", "")]
        while todo:
            value, base, pointer = todo.pop()
            members = as_object(value)
            if members is None:
                continue
            base = self._base_of(value, base)
            yield members, base, pointer
            for key, part in members.items():
                place = pointer + escape_token(key)
                parts, items = as_object(part), as_array(part)
                if key in SCHEMA_MAP_KEYWORDS and parts is not None:
                    todo += [(sub, base, place + escape_token(name)) for name, sub in parts.items()]
                elif key in SCHEMA_LIST_KEYWORDS and items is not None:
                    todo += [(sub, base, f"{place}/{i}") for i, sub in enumerate(items)]
                elif key in SCHEMA_KEYWORDS:
                    todo.append((part, base, place))

    def _register(self, schema: dict[str, Any], base: str, pointer: str) -> None:
        assert self._resources is not None
        if isinstance(schema.get(self._id_key), str):
            self._resources.setdefault(base, (schema, pointer))
        for key in ("id", "$id"):
            name = schema.get(key)
            if isinstance(name, str) and name.startswith("#"):
                self._anchors.setdefault((base, name[1:]), (schema, pointer))
        for key in ("$anchor", "$dynamicAnchor"):
            name = schema.get(key)
            if isinstance(name, str):
                self._anchors.setdefault((base, name), (schema, pointer))
        name = schema.get("$dynamicAnchor")
        if isinstance(name, str):
            self._dynamic[name] = self._dynamic.get(name, 0) + 1
        if schema.get("$recursiveAnchor") is True:
            self._recursive_anchor = True


def _check_depth(schema: Any) -> None:
    """Refuse schemas that would exhaust the stack; nesting counts objects and lists."""
    level: list[Any] = [schema]
    for _ in range(MAX_SCHEMA_DEPTH):
        below: list[Any] = []
        for value in level:
            if type(value) is dict:
                below += cast("dict[str, Any]", value).values()
            elif type(value) is list:
                below += cast("list[Any]", value)
        level = below
        if not level:
            return
    raise InvalidSchema("", f"nested deeper than {MAX_SCHEMA_DEPTH} levels")
