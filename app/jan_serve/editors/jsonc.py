"""Sets a value in JSON with comments and trailing commas; every other character stays.

Accepts the settings files of VS Code and Zed: // and /* */ comments, commas before closing brackets. `set_provider`
sets the only OpenAI-compatible provider in Cline's providers.json, for its extensions and its command line. Source:
docs.cline.bot, Config; fields from the schema of @cline/core 0.0.86.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

import msgspec

from jan_serve.editors.recipe import NO_KEY

_COMMENT: Final = r"//[^\n]*|/\*.*?\*/"
_COMMENTS: Final = re.compile(_COMMENT, re.DOTALL)
_STRING: Final = r'"(?:[^"\\]|\\.)*"'
_STRING_OR_COMMENT: Final = re.compile(f"{_STRING}|{_COMMENT}", re.DOTALL)
_STRING_OR_LAST_COMMA: Final = re.compile(rf"{_STRING}|,(?=\s*[}}\]])", re.DOTALL)
_BETWEEN: Final = re.compile(r"[\s,:]*")
_decoder: Final = json.JSONDecoder()


class UnreadableJson(ValueError):
    """The text is not JSON with comments, or not of the expected structure; the message names the line or the value."""


class _Node(NamedTuple):
    """The value at text[start:end]. key: of a member of an object."""

    key: str | None
    value: Any
    start: int
    end: int


class Named(msgspec.Struct, frozen=True):
    """A path step to the list element whose `key` has this value; added if missing."""

    key: str
    value: str


Step = str | Named


def set_value(text: str, path: Sequence[Step], value: Any) -> str:
    """Set the value at `path`, creating missing objects. A text without content becomes an object or a list.

    The path begins with a key for an object, or with Named for a list. Raises UnreadableJson.
    """
    if not _COMMENTS.sub("", text).strip():
        text = (
            text.rstrip()
            + ("\n" if text.strip() else "")
            + ("[]\n" if isinstance(path[0], Named) else "{}\n")
        )
    plain, root = _read(text)
    unit = _indent_unit(text)
    node, done = root, 0
    for step in path:
        child = _child(plain, node, step, path[:done])
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
    entries = list(_entries(plain, node))
    return _with_entry(text, node, entries, entry, unit)


def read_value(text: str) -> Any:
    """Parse the text. Raises UnreadableJson."""
    return _read(text)[1].value


def _read(text: str) -> tuple[str, _Node]:
    """The text as JSON of the same length, with blanks in place of comments and last commas, and its value."""
    plain = _STRING_OR_COMMENT.sub(lambda found: _unless_string(found[0]), text)
    plain = _STRING_OR_LAST_COMMA.sub(lambda found: _unless_string(found[0]), plain)
    try:
        value = json.loads(plain)
    except RecursionError:
        raise UnreadableJson("it has too many levels") from None
    except json.JSONDecodeError as error:
        raise UnreadableJson(f"line {error.lineno}: {error.msg}") from None
    except ValueError as error:  # a number of too many digits
        raise UnreadableJson(str(error)) from None
    return plain, _Node(None, value, len(plain) - len(plain.lstrip()), len(plain.rstrip()))


def _unless_string(text: str) -> str:
    return text if text[0] == '"' else re.sub(r"[^\n]", " ", text)


def _entries(plain: str, node: _Node) -> Iterator[_Node]:
    """The members of an object, or the items of a list. plain: JSON that was read."""
    position = _after_blanks(plain, node.start + 1)
    while position < node.end - 1:
        key = None
        if plain[node.start] == "{":
            key, position = _decoder.raw_decode(plain, position)
            position = _after_blanks(plain, position)
        value, end = _decoder.raw_decode(plain, position)
        yield _Node(key, value, position, end)
        position = _after_blanks(plain, end)


def _after_blanks(plain: str, position: int) -> int:
    found = _BETWEEN.match(plain, position)
    return found.end() if found else position


def _child(plain: str, node: _Node, step: Step, done: Sequence[Step]) -> _Node | None:
    if isinstance(step, str):
        if not isinstance(node.value, dict):
            raise UnreadableJson(f"{_path_name(done)} is not an object")
        members = [each for each in _entries(plain, node) if each.key == step]
        return members[-1] if members else None  # of several the last counts, as for a reader of JSON
    if not isinstance(node.value, list):
        raise UnreadableJson(f"{_path_name(done)} is not a list")
    return next(
        (each for each in _entries(plain, node) if _mapping(each.value).get(step.key) == step.value), None
    )


def _path_name(done: Sequence[Step]) -> str:
    words = [step if isinstance(step, str) else f"{step.key}={step.value}" for step in done]
    return f"the value of {'.'.join(words)}" if words else "the whole"


def _with_entry(text: str, node: _Node, entries: Sequence[_Node], entry: str, unit: str) -> str:
    """Append an entry to a list or an object that has these."""
    line_indent = _indent_at(text, node.start)
    close = node.end - 1
    inner = line_indent + unit
    if not entries:
        # Only comments can stand between the brackets.
        between = text[node.start + 1 : close].rstrip()
        return f"{text[: node.start + 1]}{between}\n{inner}{entry}\n{line_indent}{text[close:]}"
    last = entries[-1].end
    rest = text[last:close]
    has_comma = "," in _COMMENTS.sub("", rest)
    head = text[:last] + ("" if has_comma else ",") + rest.rstrip()
    return f"{head}\n{inner}{entry}{',' if has_comma else ''}\n{line_indent}{text[close:]}"


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
