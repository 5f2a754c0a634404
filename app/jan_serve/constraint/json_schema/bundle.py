"""Puts the documents that a schema refers to into it: nothing is fetched, so they have to be there already."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jan_serve.constraint.json_schema.document import Document
from jan_serve.constraint.json_schema.json_value import as_object
from jan_serve.constraint.json_schema.keywords import declared_draft
from jan_serve.errors import InvalidSchema, UnsupportedSchema


def bundled(schema: Any, documents: Mapping[str, Any]) -> Any:
    """The schema with those of the documents that it needs, in its `$defs`; the schema itself where it needs none.

    documents: schemas by URI. One of another draft than the schema's is not used. What is wrong with a schema is left
    to its translation.
    """
    members = as_object(schema)
    if members is None:
        return schema
    added: dict[str, Any] = {}
    try:
        while True:
            document = Document(_with(members, added))
            found = [uri for uri in document.outside() if uri in documents and uri not in added]
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
