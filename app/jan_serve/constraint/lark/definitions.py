"""Names the definitions of a printed grammar by their content, so that equal ones of several grammars are one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import Final

from msgspec.structs import replace

from jan_serve.constraint.lark.notation import LAZY, PARAMETER
from jan_serve.constraint.lark.print_lark import LarkText
from jan_serve.constraint.lark.references import components
from jan_serve.core.constraint import GrammarPiece, SpecialText
from jan_serve.text.lark_text import PIECES

_CHARACTER: Final = re.compile(r'"(?:[^"\\]|\\(?:u[0-9a-f]{4}|[^u]))"')
_HASH_BYTES: Final = 8
_IN_CYCLE: Final = "@"


def by_content(lark: LarkText) -> GrammarPiece:
    """The definitions of a text with one a line, which starts at `start`. Names that it does not define stay; those of
    rules with a parameter have its mark."""
    lines = [line.split(": ", 1) for line in lark.text.splitlines()]
    bodies = {_own_name(header): body for header, body in lines}
    bodies |= {
        special.rule: f"{special.spelled} | {special.with_token}"
        for special in lark.specials
        if special.with_token
    }
    uses = {name: _names_in(body, bodies) for name, body in bodies.items()}
    names = {
        special.rule: f"special_{_hash(special.text)}" for special in lark.specials if not special.with_token
    }
    for group in components("start", uses.__getitem__):
        names.update(_names_of(group, bodies, uses, names))
    named = {
        names[name] + header[len(name) :]: _renamed(body, names)
        for header, body in lines
        if (name := _own_name(header)) in names
    }
    return GrammarPiece(
        names["start"],
        _with_named_characters(named),
        tuple(_renamed_special(special, names) for special in lark.specials),
    )


def _renamed_special(special: SpecialText, names: Mapping[str, str]) -> SpecialText:
    rule = names[special.rule]
    if not special.with_token:
        return replace(special, rule=rule)
    return replace(
        special,
        rule=rule,
        spelled=_renamed(special.spelled, names),
        with_token=_renamed(special.with_token, names),
    )


def _with_named_characters(bodies: Mapping[str, str]) -> dict[str, str]:
    """The definitions with a rule for each text of one character in a rule: llguidance counts every text in a rule as
    another symbol, and references to a rule not at all."""
    characters: dict[str, str] = {}

    def named(piece: re.Match[str]) -> str:
        text = piece[0]
        if text[0] != '"' or not _CHARACTER.fullmatch(text):
            return text
        name = "c_" + text[1:-1].encode("utf-8").hex()
        characters[name] = text
        return name

    written = {
        header: body if header[0].isupper() else PIECES.sub(named, body) for header, body in bodies.items()
    }
    return written | characters


def _own_name(header: str) -> str:
    return header.removesuffix(PARAMETER).removesuffix(LAZY)


def _names_of(
    group: list[str], bodies: Mapping[str, str], uses: Mapping[str, list[str]], known: Mapping[str, str]
) -> dict[str, str]:
    """The names of one component: of a single definition, or of those of a cycle together."""
    if len(group) == 1 and group[0] not in uses[group[0]]:
        return {group[0]: _name(group[0], _renamed(bodies[group[0]], known))}
    blank = dict.fromkeys(group, _IN_CYCLE)
    ordered = sorted(group, key=lambda name: _renamed(bodies[name], {**known, **blank}))
    numbered = {name: f"{_IN_CYCLE}{number}" for number, name in enumerate(ordered)}
    whole = "\n".join(_renamed(bodies[name], {**known, **numbered}) for name in ordered)
    return {name: _name(name, f"{numbered[name]}\n{whole}") for name in ordered}


def _names_in(body: str, defined: Mapping[str, str]) -> list[str]:
    return list(dict.fromkeys(piece for piece in PIECES.findall(body) if piece in defined))


def _renamed(body: str, names: Mapping[str, str]) -> str:
    return PIECES.sub(lambda piece: names.get(piece[0], piece[0]), body)


def _name(old: str, content: str) -> str:
    """Rules begin with a small letter, terminals with a capital one."""
    return f"r_{_hash(content)}" if old[0].islower() else f"T_{_hash(content).upper()}"


def _hash(content: str) -> str:
    return blake2b(content.encode("utf-8", "surrogatepass"), digest_size=_HASH_BYTES).hexdigest()
