"""Patterns that ECMA-262 and Python's `re` read alike, and short texts to judge them with."""

from __future__ import annotations

import re

from hypothesis import strategies as st

_ATOMS = st.sampled_from(["a", "b", "c", ".", "[ab]", "[^a]", "\\w", "\\d", "\\s", "\\W", "-", "\\.", "\\n"])
PATTERNS = st.recursive(
    _ATOMS,
    lambda inner: st.one_of(
        st.builds("{}{}".format, inner, inner),
        st.builds("(?:{}|{})".format, inner, inner),
        st.builds(
            "({}){}".format, inner, st.sampled_from(["*", "+", "?", "{2}", "{0,2}", "{1,}", "*?", "+?"])
        ),
        st.builds("({})".format, inner),
        st.builds("^{}".format, inner),
        st.builds("{}$".format, inner),
        st.builds("\\b{}".format, inner),
    ),
    max_leaves=8,
)
_LOOKS = st.sampled_from(["?=", "?!"])
_TEMPERED = st.builds(
    "{}(?:{}({}{}){}){}{}".format,
    st.sampled_from(["", "^", "a*"]),
    st.sampled_from(["", "a", "b|"]),
    _LOOKS,
    PATTERNS,
    PATTERNS,
    st.sampled_from(["*", "+", "{2}", "{0,3}"]),
    PATTERNS,
)
LOOKAHEADS = st.one_of(
    st.builds("{}({}{}){}".format, st.sampled_from(["", "^", "a*", "."]), _LOOKS, PATTERNS, PATTERNS),
    _TEMPERED,
    st.builds("({}{}){}".format, _LOOKS, _TEMPERED, PATTERNS),
)
TEXTS = st.lists(st.text("abc1-. \n_é", max_size=6), min_size=4, max_size=8)


def python(pattern: str) -> re.Pattern[str]:
    """ECMA's `$` is Python's `\\Z`; its classes are ASCII."""
    return re.compile(re.sub(r"(?<!\\)\$", r"\\Z", pattern), re.ASCII)
