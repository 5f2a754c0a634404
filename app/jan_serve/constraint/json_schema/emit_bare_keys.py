"""Writes values with bare keys and raw strings between quotes, in place of JSON: `{k:1,l:[<|"|>x<|"|>]}`."""

from __future__ import annotations

from typing import Final

from jan_serve.constraint.ast import Expr, Literal, Special, choice, sequence
from jan_serve.constraint.json_schema import strings
from jan_serve.constraint.json_schema.emit import ValueEmitter
from jan_serve.constraint.json_schema.emit_strings import RawStop, raw_text, text_until
from jan_serve.constraint.json_schema.expand import Expander
from jan_serve.constraint.json_schema.strings import ANY_STRING, StringSet
from jan_serve.core.constraint import Whitespace

_BARE: Final = strings.Pattern(r"""^[^\s\u0000-\u0020\u007f-\u00a0,:\[\](){}'"<]+$""")


def is_bare(name: str) -> bool:
    """Whether a name is read as one without quotes around it."""
    return strings.contains(_BARE, name)


class BareKeyEmitter(ValueEmitter):
    """On one line. A name that does not read as one word stands between quotes."""

    def __init__(self, expander: Expander, *, quote: Expr, stop: str) -> None:
        """quote: around strings. stop: its text, which no string contains."""
        super().__init__(expander, whitespace=Whitespace.COMPACT)
        self._quote = quote
        self._stop = stop

    def string(self, allowed: StringSet, hint: str) -> Expr:
        if isinstance(allowed, strings.AnyString):
            return self.shared("string")
        return self._quoted(allowed, hint)

    def name(self, allowed: StringSet, hint: str) -> Expr:
        bare = strings.intersect(allowed, _BARE)
        return choice([raw_text(bare, self._stop, self.rules, f"{hint}-bare"), self.string(allowed, hint)])

    def name_outside(self, allowed: StringSet, words: tuple[str, ...], hint: str) -> Expr:
        return self.name(strings.intersect(allowed, strings.complement(strings.OneOfStrings(words))), hint)

    def key(self, name: str) -> Expr:
        return Literal(name) if is_bare(name) else self._quoted(strings.OneOfStrings((name,)), name)

    def _shared_body(self, name: str) -> Expr:
        return self._quoted(ANY_STRING, name) if name == "string" else super()._shared_body(name)

    def _quoted(self, allowed: StringSet, hint: str) -> Expr:
        until = text_until(
            allowed, RawStop(self._stop, self._stop if isinstance(self._quote, Special) else "")
        )
        if until is not None:
            return sequence([self._quote, until])
        return sequence([self._quote, raw_text(allowed, self._stop, self.rules, hint), self._quote])
