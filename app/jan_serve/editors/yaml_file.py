"""Sets values in a YAML text; comments, order and quotes stay (ruamel.yaml)."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.error import YAMLError
from ruamel.yaml.events import CollectionEndEvent, CollectionStartEvent

from jan_serve.editors.recipe import PROVIDER

_MAX_DEPTH: Final = 50
_NEW_CONTINUE_FILE: Final = "name: Local Config\nversion: 1.0.0\nschema: v1\n"


def set_keys(text: str, values: Mapping[str, Any]) -> str:
    """Set values; those of a mapping are set within it, unless it is our own entry, which is replaced.

    Raises ValueError if the text is not a YAML mapping.
    """
    document = _parsed(text)
    return _dumped(document, text) if _set(document, values) else text


def _set(document: Any, values: Mapping[str, Any]) -> bool:
    """Returns whether anything changed."""
    changed = False
    for key, value in values.items():
        known = document.get(key)
        if key != PROVIDER and isinstance(value, Mapping) and isinstance(known, Mapping):
            changed |= _set(known, cast(Mapping[str, Any], value))
        elif known != value:
            document[key], changed = value, True
    return changed


def set_models(text: str, entries: Sequence[Mapping[str, Any]], *, prefix: str) -> str:
    """Replace the entries of the list `models` whose name begins with `prefix`.

    An empty text becomes a new Continue file. Raises ValueError for an unreadable text.
    """
    document = _parsed(text if text.strip() else _NEW_CONTINUE_FILE)
    models: Any = document.get("models")
    if models is None:
        document["models"] = models = []
    if not isinstance(models, list):
        raise ValueError("`models` is not a list")
    known = cast(list[Any], models)
    ours = [index for index, item in enumerate(known) if _is_ours(item, prefix)]
    if [known[index] for index in ours] == list(entries):
        return text
    for index in reversed(ours):
        del known[index]
    position = ours[0] if ours else len(known)
    for offset, entry in enumerate(entries):
        known.insert(position + offset, dict(entry))
    return _dumped(document, text)


def _is_ours(item: Any, prefix: str) -> bool:
    name = cast(Mapping[str, Any], item).get("name") if isinstance(item, Mapping) else None
    return isinstance(name, str) and name.startswith(prefix)


def _yaml(text: str) -> Any:
    """A reader and writer that keeps the list indentation of the text."""
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 10_000
    indented = re.search(r"(?m)^[ \t]*[^\s#-][^\n]*:[ \t]*\n([ \t]*)-(\s+)", text)
    offset = len(indented[1]) if indented else 2
    yaml.indent(mapping=2, sequence=offset + 2, offset=offset)
    return yaml


def _parsed(text: str) -> Any:
    try:
        _check_depth(text)
        document = _yaml(text).load(text)
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark is not None else ""
        raise ValueError(f"{where}{getattr(error, 'problem', None) or 'not YAML'}") from None
    if document is None:
        return CommentedMap()
    if not isinstance(document, Mapping):
        raise ValueError("the whole is not a mapping")
    return cast(Any, document)


def _check_depth(text: str) -> None:
    """The reader and the writer recurse. Raises ValueError."""
    depth = 0
    for event in _yaml(text).parse(text):
        depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        if depth > _MAX_DEPTH:
            raise ValueError(f"line {event.start_mark.line + 1}: more than {_MAX_DEPTH} levels")


def _dumped(document: Any, text: str) -> str:
    stream = io.StringIO()
    if _yaml(text).load(text) is None and text.strip():
        # The comments belong to no value, so the writer would drop them.
        stream.write(text.rstrip("\n") + "\n")
    _yaml(text).dump(document, stream)
    return stream.getvalue()
