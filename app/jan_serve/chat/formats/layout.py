"""How a model writes tool calls, as data: for grammars that constrain a call, and for writing calls into a history.

Parsing does not go by it: a parser takes more than a model should write.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Slot(Enum):
    """A place in a layout that each call, or each argument, fills."""

    NAME = "name"
    """The tool's name, as it is (in JSON layouts between quotes that belong to the layout)."""
    ARGUMENTS = "arguments"
    """All arguments, in the layout's ArgumentSyntax."""
    INDEX = "index"
    """The call's number: CallLayout.first_index for the first one of an answer, then counted up."""
    CALL_ID = "call_id"
    """The id of the call; in an answer the model's own, matching `CALL_ID_PATTERN`. It is never given to clients."""
    KEY = "key"
    """An argument's name."""
    VALUE = "value"
    """An argument's value."""
    IS_STRING = "is_string"
    """`true` where the value is raw text, `false` where it is JSON."""
    JSON_TYPE = "json_type"
    """`string`, `number`, `boolean`, `null`, `object` or `array`."""


CALL_ID_PATTERN = "[a-zA-Z0-9_-]{1,40}"

Parts = tuple[str | Slot, ...]


@dataclass(frozen=True, slots=True)
class JsonArguments:
    """One JSON object."""


@dataclass(frozen=True, slots=True)
class TaggedArguments:
    """One after another, `argument` for each: KEY, then VALUE, with `separator` between arguments.

    A string is raw text that does not contain what follows VALUE; anything else is JSON.
    """

    argument: Parts
    separator: str = ""


@dataclass(frozen=True, slots=True)
class PythonArguments:
    """Keyword arguments of a Python call, `k=v, k=v`: strings in single or double quotes, the rest as `literals` says.

    json_words: true, false and null in place of True, False and None.
    """

    json_words: bool = False


@dataclass(frozen=True, slots=True)
class GemmaArguments:
    """`{k:v,k:v}` with bare keys; strings are raw between `quote`s, the rest is as in JSON."""

    quote: str = '<|"|>'


@dataclass(frozen=True, slots=True)
class NestedTagArguments:
    """One element for each argument: `prefix<key>`, value, `prefix</key>`.

    An object's value is its members' elements, an array's `prefix<item>…prefix</item>` for each; strings are raw,
    the rest JSON.
    """

    prefix: str


ArgumentSyntax = JsonArguments | TaggedArguments | PythonArguments | GemmaArguments | NestedTagArguments


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLayout:
    """An answer's calls: `opening`, each call as `call`, `separator` between calls, `closing`.

    triggers: free text that ends with one of these has begun a call; `after` says what must follow. at_start: only
    where nothing but white space comes before the trigger in the answer.
    optional_breaks: line breaks mean nothing, and models of this format differ in them: they may be left out.
    after_thought: comes before `opening` behind a thought that was closed. parallel: whether there is a place for a
    second call.
    """

    call: Parts
    triggers: tuple[str, ...]
    opening: str = ""
    separator: str = ""
    closing: str = ""
    after_thought: str = ""
    arguments: ArgumentSyntax = JsonArguments()
    first_index: int = 0
    at_start: bool = False
    parallel: bool = True
    optional_breaks: bool = False

    def after(self, trigger: str) -> Parts:
        """What completes the first call behind one of `triggers`, without `closing`.

        A trigger that the layout does not hold is another way to write what it has before its first slot.
        """
        first = self.call[0]
        head, rest = (first, self.call[1:]) if isinstance(first, str) else ("", self.call)
        parts: Parts = (self.opening + head, *rest)
        for number, part in enumerate(parts):
            if isinstance(part, str) and trigger in part:
                return (part[part.index(trigger) + len(trigger) :], *parts[number + 1 :])
        return rest
