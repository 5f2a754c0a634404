"""The layout of a family's tool calls, as data, for grammars that constrain calls and for writing calls to a history;
and the ids of calls. Parsers accept more than a model should write.

Ids of calls are unique in a chat. The caller supplies the randomness.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Final

import msgspec

from jan_serve.core.messages import Message


class Slot(Enum):
    """A placeholder in a layout, filled for each call or argument."""

    NAME = "name"
    """The tool's name, unquoted: the quotes of JSON belong to the layout."""
    ARGUMENTS = "arguments"
    """All arguments, in the layout's ArgumentSyntax."""
    INDEX = "index"
    """The call's number in the answer, counted from CallLayout.first_index; in an answer it matches `INDEX_PATTERN`."""
    CALL_ID = "call_id"
    """The call's id. In an answer the model invents it, matching `CALL_ID_PATTERN`; clients never see it."""
    KEY = "key"
    VALUE = "value"
    IS_STRING = "is_string"
    """`true` if the value is raw text, `false` if it is JSON."""
    JSON_TYPE = "json_type"
    """`string`, `number`, `boolean`, `null`, `object` or `array`."""


CALL_ID_PATTERN = "[a-zA-Z0-9_-]{1,40}"
INDEX_PATTERN = "0|[1-9][0-9]{0,3}"

Parts = tuple[str | Slot, ...]
_SLOT: Final = re.compile(rf"\$({'|'.join(slot.name for slot in Slot)})")


def parts(text: str) -> Parts:
    """The text with a Slot for each `$` and its name."""
    pieces = enumerate(_SLOT.split(text))
    return tuple(Slot[piece] if index % 2 else piece for index, piece in pieces if piece)


class JsonArguments(msgspec.Struct, frozen=True):
    """The arguments of a call as one JSON object."""


class TaggedArguments(msgspec.Struct, frozen=True):
    """One `argument` for each: KEY, then VALUE, joined by `separator`.

    A string is raw text without the literal after VALUE; anything else is JSON. section: what opens and closes another
    form of strings, which may hold that literal. python_words: true, false and null that are not within an array or
    object are True, False and None.
    """

    argument: Parts
    separator: str = ""
    section: tuple[str, str] | None = None
    python_words: bool = False

    @property
    def pad(self) -> str:
        """A line break that is not part of a value, once before and once after it."""
        before = self.argument[self.argument.index(Slot.VALUE) - 1]
        return "\n" if isinstance(before, str) and before.endswith("\n") else ""


class PythonArguments(msgspec.Struct, frozen=True):
    """Keyword arguments of a Python call, `k=v, k=v`; values are those of `literals`.

    json_words: true, false and null instead of True, False and None.
    """

    json_words: bool = False


class GemmaArguments(msgspec.Struct, frozen=True):
    """`{k:v,k:v}` with bare keys, at any depth; strings are raw text between `quote`s, other values are JSON.

    A key that does not read as one word stands between quotes too.
    """

    quote: str = '<|"|>'


class NestedTagArguments(msgspec.Struct, frozen=True):
    """One element for each argument: `prefix<key>`, value, `prefix</key>`.

    An object contains its members' elements, an array `prefix<item>…prefix</item>` for each item; strings are raw text,
    other values JSON.
    """

    prefix: str


ArgumentSyntax = JsonArguments | TaggedArguments | PythonArguments | GemmaArguments | NestedTagArguments


_AS_JSON: Final = JsonArguments()


class CallLayout(msgspec.Struct, frozen=True, kw_only=True):
    """An answer's calls: `opening`, each call as `call`, joined by `separator`, and `closing`.

    triggers: free text that ends with one of these starts a call, which `after` completes. at_start: the trigger counts
    only at the start of the answer, after white space at most.
    confirmed_by: where a trigger may be ordinary text, what stands between a tool's name and its arguments in a call.
    no_call: the name in place of a tool's, with empty arguments, where a trigger leads to no call after all.
    other_headers: what completes a call after a trigger that is not part of `call`. optional_breaks: line breaks may be
    omitted; models of this format differ in them.
    after_thought: written between a closed thought and `opening`. parallel: an answer may have several calls.
    """

    call: Parts
    triggers: tuple[str, ...]
    opening: str = ""
    separator: str = ""
    closing: str = ""
    after_thought: str = ""
    arguments: ArgumentSyntax = _AS_JSON
    first_index: int = 0
    at_start: bool = False
    confirmed_by: str = ""
    no_call: str = ""
    parallel: bool = True
    optional_breaks: bool = False
    other_headers: tuple[tuple[str, Parts], ...] = ()

    def after(self, trigger: str) -> Parts:
        """The parts that complete the first call after `trigger`, without `closing`.

        A trigger that the layout does not contain replaces all its text before the first slot.
        """
        for text, parts in self.other_headers:
            if text == trigger:
                return parts
        first = self.call[0]
        head, rest = (first, self.call[1:]) if isinstance(first, str) else ("", self.call)
        parts: Parts = (self.opening + head, *rest)
        for number, part in enumerate(parts):
            if isinstance(part, str) and trigger in part:
                return (part[part.index(trigger) + len(trigger) :], *parts[number + 1 :])
        return rest


def listed(call: str, before: str = "", after: str = "", arguments: ArgumentSyntax = _AS_JSON) -> CallLayout:
    """The layout of calls in a list, after a marker."""
    return CallLayout(
        opening=before + "[",
        call=parts(call),
        separator=", ",
        closing="]" + after,
        arguments=arguments,
        triggers=(before,),
    )


class IdStyle(Enum):
    """The style of call ids that a template checks or shows."""

    PLAIN = "plain"
    NINE_CHARACTERS = "nine_characters"
    """Nine letters and digits: Mistral's templates reject other ids."""
    FUNCTION_INDEX = "function_index"
    """`functions.NAME:INDEX`, with the index counted over the chat: Kimi's templates show it to the model."""


_NINE: Final = 9
_ATTEMPTS: Final = 1000


def ids_in(messages: Iterable[Message]) -> frozenset[str]:
    """The ids of the calls and results of a chat."""
    ids = {call.id for message in messages for call in message.tool_calls}
    return frozenset(ids | {message.tool_call_id for message in messages if message.tool_call_id is not None})


def nine_characters(call_id: str) -> str:
    """The id itself if it has nine letters and digits; else such an id made from it, always the same."""
    if len(call_id) == _NINE and call_id.isascii() and call_id.isalnum():
        return call_id
    return hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:_NINE]


class CallIds:
    """Makes ids for the calls of one request, across all its choices. An instance is an `IdFactory`."""

    def __init__(self, style: IdStyle, taken: Iterable[str], random_text: Callable[[], str]) -> None:
        """taken: ids in use. random_text: returns nine or more random ASCII letters and digits."""
        self._style = style
        self._taken = set(taken)
        self._random_text = random_text
        self._next_index = len(self._taken)

    def __call__(self, name: str, own_id: str = "") -> str:
        """A new id for a call of the tool `name`. Raises RuntimeError if `random_text` returns only taken ids.

        own_id: that the model wrote. It stays if it has the style and is new: the history then shows what it wrote.
        """
        if own_id not in self._taken and self._has_style(own_id, name):
            self._taken.add(own_id)
            return own_id
        for _ in range(_ATTEMPTS):
            call_id = self._make(name)
            if call_id not in self._taken:
                self._taken.add(call_id)
                return call_id
        raise RuntimeError(f"no new id for a tool call in {_ATTEMPTS} attempts")

    def _has_style(self, own_id: str, name: str) -> bool:
        match self._style:
            case IdStyle.PLAIN:
                return re.fullmatch(CALL_ID_PATTERN, own_id) is not None
            case IdStyle.NINE_CHARACTERS:
                return nine_characters(own_id) == own_id
            case IdStyle.FUNCTION_INDEX:
                return re.fullmatch(rf"functions\.{re.escape(name)}:({INDEX_PATTERN})", own_id) is not None

    def _make(self, name: str) -> str:
        match self._style:
            case IdStyle.PLAIN:
                return f"call_{self._random_text()}"
            case IdStyle.NINE_CHARACTERS:
                return self._random_text()[:_NINE]
            case IdStyle.FUNCTION_INDEX:
                self._next_index += 1
                return f"functions.{name}:{self._next_index - 1}"
