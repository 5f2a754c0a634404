"""What sets of strings mean, by their definition."""

from __future__ import annotations

import re

from jan_serve.constraint.json_schema.scalars import strings
from jan_serve.constraint.json_schema.scalars.strings import StringSet


def in_set(s: StringSet, text: str) -> bool:
    """Whether a text is in a string set. Formats are left to their own tests."""
    match s:
        case strings.AnyString():
            return True
        case strings.OneOfStrings(values):
            return text in values
        case strings.Length(low, high):
            return low <= len(text) and (high is None or len(text) <= high)
        case strings.Pattern(pattern):
            return bool(re.search(pattern.replace("$", "\\Z"), text, re.ASCII))
        case strings.AllOf(items):
            return all(in_set(item, text) for item in items)
        case strings.SomeOf(items):
            return any(in_set(item, text) for item in items)
        case strings.NotIn(item):
            return not in_set(item, text)
        case strings.Format():
            return strings.string_dfa(s).matches(text)
