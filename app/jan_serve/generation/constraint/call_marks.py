"""How the calls of a format show where a raw text of theirs begins and ends."""

from __future__ import annotations

import re
from typing import Final

from jan_serve.chat.call_layout import (
    CALL_ID_PATTERN,
    INDEX_PATTERN,
    CallLayout,
    GemmaArguments,
    NestedTagArguments,
    Parts,
    Slot,
    TaggedArguments,
)
from jan_serve.core.text_bounds import CallMarks
from jan_serve.core.uniqueness import CallLocations

_WORDS: Final = {
    Slot.IS_STRING: "(?:true|false)",
    Slot.JSON_TYPE: "[a-z]+",
    Slot.INDEX: f"(?:{INDEX_PATTERN})",
    Slot.CALL_ID: CALL_ID_PATTERN,
}


def call_marks(layout: CallLayout) -> CallMarks:
    """The marks of a layout with raw texts. Raises ValueError for any other."""
    before_name, after_name = _around_name(layout.call)
    before_key, key, after_key, end = _around_key(layout)
    return CallMarks(
        before_name=re.escape(before_name),
        after_name=re.escape(after_name) if after_name else "(?=[<{])",
        before_key=before_key,
        key=key,
        after_key=after_key,
        stop=end.strip(),
        gap=end[: len(end) - len(end.lstrip())],
    )


def starts(layout: CallLayout) -> tuple[str, ...]:
    """What is before the name after each trigger, as a regular expression."""
    texts = (_around_name(layout.after(trigger))[0] for trigger in layout.triggers)
    return tuple(re.escape(text) or "(?:)" for text in texts)


def call_locations(layout: CallLayout) -> tuple[CallLocations, ...]:
    """Where a layout has JSON arguments: in the whole text, and in what follows each trigger."""
    name, arguments = layout.call.index(Slot.NAME), layout.call.index(Slot.ARGUMENTS)
    before = _around_name(layout.call)[0]
    between = _pattern(layout.call[name + 1 : arguments])
    left = (_around_name(layout.after(trigger))[0] for trigger in layout.triggers)
    begun = (before[: max(len(before) - len(text), 0)] for text in left)
    return tuple(CallLocations(re.escape(before), between, text) for text in ("", *begun))


def _pattern(parts: Parts) -> str:
    return "".join(re.escape(part) if isinstance(part, str) else _WORDS[part] for part in parts)


def _around_name(parts: Parts) -> tuple[str, str]:
    """The line of text before the last name of a call, and the text after it."""
    at = len(parts) - 1 - parts[::-1].index(Slot.NAME)
    before, after = parts[at - 1] if at else "", parts[at + 1]
    return (
        before.rpartition("\n")[2] if isinstance(before, str) else "",
        after if isinstance(after, str) else "",
    )


def _around_key(layout: CallLayout) -> tuple[str, str, str, str]:
    """What is before, in and after a key, as regular expressions, and what is after the value."""
    syntax = layout.arguments
    match syntax:
        case TaggedArguments(argument=parts):
            key, value = parts.index(Slot.KEY), parts.index(Slot.VALUE)
            return _pattern(parts[:key]), ".+?", _pattern(parts[key + 1 : value]), str(parts[value + 1])
        case GemmaArguments(quote=quote):
            # Texts in arrays have no key.
            return "(?:[{,]", r"[^{},:\[\]<]+", f":)?{re.escape(quote)}", quote
        case NestedTagArguments(prefix=prefix):
            frame = (layout.opening, str(layout.call[0]))
            others = "|".join(re.escape(text.removeprefix(f"{prefix}<").strip()) for text in frame)
            return re.escape(f"{prefix}<"), f"(?!/|{others}).+?", ">", prefix
        case _:
            raise ValueError("JSON arguments have no raw texts")
