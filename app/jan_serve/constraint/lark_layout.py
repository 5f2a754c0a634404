"""Layouts as llguidance's parametric rules: the parameter holds the layout and the number of open brackets.

llguidance completes a rule for every parameter that it has at the same position. So a position must determine the
parameter of each rule. Compact texts may begin as spaced ones, so up to their first colon or comma they have rules of
their own; the layouts with lines are told apart by terminals before the first parametric rule.
"""

from __future__ import annotations

from typing import Final

from jan_serve.constraint.ast import Brackets, Mark
from jan_serve.constraint.lark_quoting import spelled_out
from jan_serve.constraint.layout import COMPACT, INDENTED, SPACED, Layout

PARAMETER: Final = "::_"
"""Between the name of a parametric rule and the colon."""
_DEPTH: Final = "[0:16]"
ALWAYS: Final = " %if ge(_, 0)"
"""Ends a rule that is the only one of its name and goes deeper: llguidance (1.9) would put it in the place of its name,
and panics where the rule leads back to itself."""
_LAYOUT: Final = "[16:19]"
DEEPER: Final = "incr(_)"
"""One bracket more. Up to 65,535 of them it is the same as `incr([0:16])`, which llguidance reads in twice the time."""
_NUMBERS: Final = {layout.name: number for number, layout in enumerate((COMPACT, SPACED, *INDENTED))}
_BRACKETS: Final = {"{": "brace", "}": "brace", "[": "bracket", "]": "bracket"}

_IS_COMPACT: Final = f"%if eq({_LAYOUT}, {_NUMBERS[COMPACT.name]})"
_IS_SPACED: Final = f"%if eq({_LAYOUT}, {_NUMBERS[SPACED.name]})"
_HAS_SPACES: Final = f"%if ge({_LAYOUT}, {_NUMBERS[SPACED.name]})"
_NO_LINES: Final = f"%if le({_LAYOUT}, {_NUMBERS[SPACED.name]})"
_LINES: Final = f"%if ge({_LAYOUT}, {_NUMBERS[INDENTED[0].name]})"


def is_indented(lark: str) -> bool:
    """Whether a printed grammar has layouts with lines."""
    return HELPERS[-1] in lark


def first_argument(layout: Layout) -> str:
    """The parameter within the first brackets."""
    return hex(_NUMBERS[layout.name] << 16 | 1)


def mark_rule(mark: Mark) -> str:
    """The text of a mark in a parametric rule."""
    return "layout_comma::_" if mark.text == "," else "layout_colon::_"


def opening_rule(brackets: Brackets) -> str:
    """The opening bracket and the line break after it."""
    return f"layout_open_{_BRACKETS[brackets.opening]}::_"


def closing_rule(brackets: Brackets) -> str:
    return f"layout_close_{_BRACKETS[brackets.closing]}::_"


def _units() -> str:
    return " | ".join(
        f"{spelled_out(layout.unit or '')} %if eq({_LAYOUT}, {_NUMBERS[layout.name]})" for layout in INDENTED
    )


# No rule is empty under a condition: llguidance takes it for empty always. The recursion is on the right, where each
# level begins at another position.
HELPERS: Final = (
    f'layout_comma::_: "," {_IS_COMPACT} | "," " " {_IS_SPACED} | "," layout_line::_ {_LINES}',
    f'layout_colon::_: ":" {_IS_COMPACT} | ":" " " {_HAS_SPACES}',
    *(
        f'layout_open_{name}::_: "{bracket}" {_NO_LINES} | "{bracket}" layout_line::{DEEPER} {_LINES}'
        for bracket, name in (("{", "brace"), ("[", "bracket"))
    ),
    *(
        f'layout_close_{name}::_: "{bracket}" {_NO_LINES} | layout_line::_ "{bracket}" {_LINES}'
        for bracket, name in (("}", "brace"), ("]", "bracket"))
    ),
    f'layout_line::_: "\\n" %if is_zeros({_DEPTH}) | "\\n" layout_indentation::_ %if ge({_DEPTH}, 1)',
    f"layout_indentation::_: layout_unit::_ %if eq({_DEPTH}, 1)"
    f" | layout_unit::_ layout_indentation::decr({_DEPTH}) %if ge({_DEPTH}, 2)",
    f"layout_unit::_: {_units()}",
)
"""Definitions that parametric rules refer to."""
