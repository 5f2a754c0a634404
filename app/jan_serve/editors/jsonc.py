"""Sets a value in JSON with comments and trailing commas; every other character stays.

Accepts the settings files of VS Code and Zed: // and /* */ comments, commas before closing brackets. `set_provider`
sets the only OpenAI-compatible provider in Cline's providers.json, for its extensions and its command line. Source:
docs.cline.bot, Config; fields from the schema of @cline/core 0.0.86.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from jan_serve.editors.recipe import NO_KEY

_MAX_DEPTH: Final = 100
_SPACE: Final = re.compile(r"(?:\s+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING: Final = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_SCALAR: Final = re.compile(r"-?\d[0-9.eE+-]*|true|false|null")


class UnreadableJson(ValueError):
    """The text is not JSON with comments, or not of the expected structure; the message names the line or the value."""


class _Node(msgspec.Struct):
    """The value at text[start:end]. members: only of an object. items: only of a list."""

    start: int
    end: int = 0
    value: Any = None
    members: dict[str, _Node] | None = None
    items: list[_Node] | None = None


class Named(msgspec.Struct, frozen=True):
    """A path step to the list element whose `key` has this value; added if missing."""

    key: str
    value: str


Step = str | Named


def set_value(text: str, path: Sequence[Step], value: Any) -> str:
    """Set the value at `path`, creating missing objects. A text without content becomes an object or a list.

    The path begins with a key for an object, or with Named for a list. Raises UnreadableJson.
    """
    if not _SPACE.sub("", text, count=1).strip():
        text = (
            text.rstrip()
            + ("\n" if text.strip() else "")
            + ("[]\n" if isinstance(path[0], Named) else "{}\n")
        )
    root = _Reader(text).read()
    unit = _indent_unit(text)
    node, done = root, 0
    for step in path:
        child = _child(text, node, step, path[:done])
        if child is None:
            break
        node, done = child, done + 1
    for step in reversed(path[done + 1 :]):
        value = {step: value} if isinstance(step, str) else [value]
    if done == len(path):
        if node.value == value:
            return text
        return text[: node.start] + _dumped(value, _indent_at(text, node.start), unit) + text[node.end :]
    step = path[done]
    line_indent = _indent_at(text, node.start)
    entry = _dumped(value, line_indent + unit, unit)
    if isinstance(step, str):
        entry = f"{json.dumps(step, ensure_ascii=False)}: {entry}"
    return _with_entry(text, node, entry, line_indent, unit)


def read_value(text: str) -> Any:
    """Parse the text. Raises UnreadableJson."""
    return _Reader(text).read().value


def _child(text: str, node: _Node, step: Step, done: Sequence[Step]) -> _Node | None:
    if isinstance(step, str):
        if node.members is None:
            raise UnreadableJson(f"{_path_name(done)} is not an object")
        return node.members.get(step)
    if node.items is None:
        raise UnreadableJson(f"{_path_name(done)} is not a list")
    for item in node.items:
        if item.members is not None and item.value.get(step.key) == step.value:
            return item
    return None


def _path_name(done: Sequence[Step]) -> str:
    words = [step if isinstance(step, str) else f"{step.key}={step.value}" for step in done]
    return f"the value of {'.'.join(words)}" if words else "the whole"


def _with_entry(text: str, node: _Node, entry: str, line_indent: str, unit: str) -> str:
    """Append an entry to a list or an object."""
    entries = list(node.members.values()) if node.members is not None else node.items or []
    close = node.end - 1
    inner = line_indent + unit
    if not entries:
        # Only comments can stand between the brackets.
        between = text[node.start + 1 : close].rstrip()
        return f"{text[: node.start + 1]}{between}\n{inner}{entry}\n{line_indent}{text[close:]}"
    last = entries[-1].end
    rest = text[last:close]
    has_comma = "," in _without_comments(rest)
    head = text[:last] + ("" if has_comma else ",") + rest.rstrip()
    return f"{head}\n{inner}{entry}{',' if has_comma else ''}\n{line_indent}{text[close:]}"


def _without_comments(text: str) -> str:
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)


def _dumped(value: Any, line_indent: str, unit: str) -> str:
    text = json.dumps(value, indent=unit, ensure_ascii=False)
    return text.replace("\n", "\n" + line_indent)


def _indent_at(text: str, position: int) -> str:
    """The indentation of the line at `position`."""
    line = text[text.rfind("\n", 0, position) + 1 : position]
    return line[: len(line) - len(line.lstrip())]


def _indent_unit(text: str) -> str:
    found = re.search(r"[\[{][^\n\"]*\n([ \t]+)\S", text)
    return found[1] if found and len(found[1]) <= 8 else "  "


class _Reader(msgspec.Struct):
    text: str
    position: int = 0

    def read(self) -> _Node:
        node = self._value(0)
        self._skip()
        if self.position != len(self.text):
            raise self._error("there is text after the end")
        return node

    def _skip(self) -> None:
        match = _SPACE.match(self.text, self.position)
        self.position = match.end() if match else self.position

    def _error(self, message: str) -> UnreadableJson:
        line = self.text.count("\n", 0, self.position) + 1
        return UnreadableJson(f"line {line}: {message}")

    def _value(self, depth: int) -> _Node:
        self._skip()
        if depth > _MAX_DEPTH:
            raise self._error(f"more than {_MAX_DEPTH} levels")
        first = self.text[self.position : self.position + 1]
        if first == "{":
            return self._object(depth)
        if first == "[":
            return self._list(depth)
        node = _Node(self.position)
        match = (_STRING if first == '"' else _SCALAR).match(self.text, self.position)
        if match is None:
            raise self._error("a value is missing or is not JSON")
        try:
            node.value = json.loads(match[0])
        except ValueError:
            raise self._error("a value is not JSON") from None
        self.position = node.end = match.end()
        return node

    def _object(self, depth: int) -> _Node:
        node = _Node(self.position, members={}, value={})
        assert node.members is not None
        self.position += 1
        while not self._closes("}"):
            key = self._value(depth + 1)
            self._skip()
            if not isinstance(key.value, str) or self.text[self.position : self.position + 1] != ":":
                raise self._error("a key and a colon are missing")
            self.position += 1
            child = self._value(depth + 1)
            node.members[key.value] = child
            node.value[key.value] = child.value
            self._comma("}")
        node.end = self.position
        return node

    def _list(self, depth: int) -> _Node:
        node = _Node(self.position, items=[], value=[])
        assert node.items is not None
        self.position += 1
        while not self._closes("]"):
            child = self._value(depth + 1)
            node.items.append(child)
            node.value.append(child.value)
            self._comma("]")
        node.end = self.position
        return node

    def _closes(self, bracket: str) -> bool:
        self._skip()
        if self.text[self.position : self.position + 1] != bracket:
            return False
        self.position += 1
        return True

    def _comma(self, bracket: str) -> None:
        self._skip()
        if self.text[self.position : self.position + 1] == ",":
            self.position += 1
        elif self.text[self.position : self.position + 1] != bracket:
            raise self._error(f"a comma or {bracket} is missing")


OPENAI_COMPATIBLE: Final = "openai-compatible"
_NEW_FILE: Final = f'{{\n  "version": 1,\n  "lastUsedProvider": "{OPENAI_COMPATIBLE}"\n}}\n'
_VERSION: Final = 1
# The schema requires a time; Cline writes the real one when it uses the provider.
_NO_TIME: Final = "1970-01-01T00:00:00.000Z"


def set_provider(text: str, settings: Mapping[str, Any]) -> str:
    """Set the provider's settings. Its key and other fields are kept if the address does not change.

    Raises ValueError for any other file, and if a key for another address would be lost.
    """
    text = text if text.strip() else _NEW_FILE
    document = _mapping(read_value(text))
    if document.get("version") != _VERSION:
        raise ValueError(f"it is not of version {_VERSION}")
    entry = _mapping(_mapping(document.get("providers")).get(OPENAI_COMPATIBLE))
    old = _mapping(entry.get("settings"))
    if old.get("baseUrl") != settings["baseUrl"]:
        if old.get("apiKey") not in (None, "", NO_KEY):
            raise ValueError(
                f"its OpenAI-compatible provider, of which Cline has one, has a key for {old.get('baseUrl')}"
            )
        old = {}
    new = {**old, **settings}
    if new == old:
        return text
    value = {"settings": new, "updatedAt": entry.get("updatedAt", _NO_TIME), "tokenSource": "manual"}
    return set_value(text, ("providers", OPENAI_COMPATIBLE), value)


def _mapping(value: Any) -> dict[str, Any]:
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}
