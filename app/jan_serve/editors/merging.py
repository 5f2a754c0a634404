"""Sets values in JSON, TOML (tomlkit) and YAML (ruamel.yaml); comments and all else stay.
JSON is that of VS Code and Zed: with // and /* */ comments, and commas before closing brackets."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import msgspec
import tomlkit
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.error import YAMLError
from ruamel.yaml.events import CollectionEndEvent, CollectionStartEvent
from tomlkit import TOMLDocument
from tomlkit.exceptions import TOMLKitError

from jan_serve.editors.recipe import NO_KEY, PROVIDER, Change

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
    The path begins with a key for an object, or with Named for a list. Raises UnreadableJson."""
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
"""The only provider of its kind in Cline's providers.json, for its extensions and its command line. Source:
docs.cline.bot, Config; fields from the schema of @cline/core 0.0.86."""
_NEW_FILE: Final = f'{{\n  "version": 1,\n  "lastUsedProvider": "{OPENAI_COMPATIBLE}"\n}}\n'
_VERSION: Final = 1
# The schema requires a time; Cline writes the real one when it uses the provider.
_NO_TIME: Final = "1970-01-01T00:00:00.000Z"


def set_provider(text: str, settings: Mapping[str, Any]) -> str:
    """Set the provider's settings. Its key and other fields are kept if the address does not change.
    Raises ValueError for any other file, and if a key for another address would be lost."""
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


def set_values(text: str, values: Mapping[str, Any]) -> str:
    """Set top-level values, before the tables. Raises ValueError for invalid TOML."""
    document = parsed(text)
    table = cast(dict[str, Any], document)
    for key, value in values.items():
        if table.get(key) != value:
            table[key] = value
    return tomlkit.dumps(document)


def set_table(text: str, path: Sequence[str], values: Mapping[str, Any]) -> str:
    """Replace the table at `path` by these values. Raises ValueError for invalid TOML."""
    document = parsed(text)
    table = cast(dict[str, Any], document)
    for key in path[:-1]:
        table = _table(table, key, is_super=True)
    if table.get(path[-1]) == dict(values):
        return text
    new = tomlkit.table()
    for key, value in values.items():
        new[key] = value
    table[path[-1]] = new
    return tomlkit.dumps(document)


def parsed(text: str) -> TOMLDocument:
    """Raises ValueError for invalid TOML."""
    try:
        return tomlkit.parse(text)
    except TOMLKitError as error:
        raise ValueError(str(error)) from None


_MODELS: Final = "models"
_ALIASES: Final = "aliases"


def set_aliases(text: str, model: str, aliases: Sequence[str]) -> str:
    """Add the aliases to the model's table, and take them from the tables of others. Raises ValueError."""
    document = parsed(text)
    models = _table(cast(dict[str, Any], document), _MODELS, is_super=True)
    wanted = {alias.casefold() for alias in aliases}
    for name in list(models):
        if name != model:
            entry = _table(models, name)
            others = _names(entry, name)
            kept = [alias for alias in others if alias.casefold() not in wanted]
            if kept != others:
                entry[_ALIASES] = kept
    entry = _table(models, model)
    present = _names(entry, model)
    known = {alias.casefold() for alias in present}
    missing = [alias for alias in aliases if alias.casefold() not in known]
    if missing:
        entry[_ALIASES] = [*present, *missing]
    return tomlkit.dumps(document)


def _table(parent: dict[str, Any], name: str, *, is_super: bool = False) -> dict[str, Any]:
    """The table of this name, added if missing. is_super: a new one has no header of its own."""
    if name not in parent:
        parent[name] = tomlkit.table(is_super_table=is_super)
    if not isinstance(parent[name], dict):
        raise ValueError(f"{name} is not a table")
    return cast(dict[str, Any], parent[name])


def _names(entry: dict[str, Any], model: str) -> list[str]:
    value = entry.get(_ALIASES, [])
    if not isinstance(value, list) or not all(isinstance(alias, str) for alias in cast(list[Any], value)):
        raise ValueError(f"the aliases of {model} are not a list of texts")
    return [str(alias) for alias in cast(list[str], value)]


_MAX_DEPTH: Final = 50
_NEW_CONTINUE_FILE: Final = "name: Local Config\nversion: 1.0.0\nschema: v1\n"


def set_keys(text: str, values: Mapping[str, Any]) -> str:
    """Set values; those of a mapping are set within it, unless it is our own entry, which is replaced.
    Raises ValueError if the text is not a YAML mapping."""
    document = _parsed(text)
    return _yaml_text(document, text) if _set(document, values) else text


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
    An empty text becomes a new Continue file. Raises ValueError for an unreadable text."""
    document = _parsed(text if text.strip() else _NEW_CONTINUE_FILE)
    models: Any = document.get("models")
    if models is None:
        document["models"] = models = []
    if not isinstance(models, list):
        raise ValueError("`models` is not a list")
    known = cast(list[Any], models)
    ours = [index for index, item in enumerate(known) if str(_mapping(item).get("name")).startswith(prefix)]
    if [known[index] for index in ours] == list(entries):
        return text
    for index in reversed(ours):
        del known[index]
    position = ours[0] if ours else len(known)
    for offset, entry in enumerate(entries):
        known.insert(position + offset, dict(entry))
    return _yaml_text(document, text)


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


def _yaml_text(document: Any, text: str) -> str:
    stream = io.StringIO()
    if _yaml(text).load(text) is None and text.strip():
        # The comments belong to no value, so the writer would drop them.
        stream.write(text.rstrip("\n") + "\n")
    _yaml(text).dump(document, stream)
    return stream.getvalue()


def json_change(file: Path, *changes: tuple[Sequence[Step], Any]) -> Change:
    """Sets each value at its path; see `set_value`."""

    def merge(text: str) -> str:
        for path, value in changes:
            text = set_value(text, path, value)
        return text

    return Change(file, merge)


def yaml_change(file: Path, values: Mapping[str, Any]) -> Change:
    return Change(file, lambda text: set_keys(text, values))
