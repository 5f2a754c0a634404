from __future__ import annotations

import pytest

from jan_serve.engine.constraint.lark_limits import MAX_DEPTH, MAX_LITERAL, check_lark
from jan_serve.errors import GrammarTooComplex


def chain(length: int, body: str = '"a" {next}') -> str:
    lines = [f"r_{i}: {body.replace('{next}', f'r_{i + 1}')}" for i in range(length)]
    return "\n".join(["start: r_0", *lines, f'r_{length}: "b"']) + "\n"


WRAPPED = "(" * 12 + '"a" {next}' + ' | "c")?' * 12

FINE = {
    "short": 'start: "a" r_1\nr_1: "b"\n',
    "a chain at the limit": chain(MAX_DEPTH - 2),
    "many rules beside one another": "start: "
    + " ".join(f"r_{i}" for i in range(5000))
    + "\n"
    + "".join(f'r_{i}: "a" | "b" r_{(i * 7) % 5000}\n' for i in range(0, 5000, 5000)),
    "each rule is compiled once": 'start: a b\na: "x" b\nb: "y" a?\n',
    "brackets and names in texts": f'start: "{"(" * 3000}" /[{"(" * 3000}]/ "r_1 \\" (" r_1\nr_1: "x"\n',
    "a rule that is not there": "start: r_9\n",
    "nothing": "",
}
DEEP = {
    "a chain": chain(MAX_DEPTH),
    "a chain of optional rules": chain(3000, '("a" {next})?'),
    "a cycle": chain(3000).replace('r_3000: "b"', 'r_3000: "b" r_0?'),
    "terminals": chain(3000).replace("r_", "T_"),
    "groups along a chain": chain(400, WRAPPED),
    "groups in one rule": "start: " + "(" * MAX_DEPTH + '"a"' + ")" * MAX_DEPTH + "\n",
    "a terminal with a priority": chain(3000).replace("r_1500:", "r_1500.5 :"),
}


@pytest.mark.parametrize("text", FINE.values(), ids=FINE)
def test_what_a_stack_holds_passes(text: str) -> None:
    check_lark(text)


@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP)
def test_what_fills_a_stack_is_refused(text: str) -> None:
    with pytest.raises(GrammarTooComplex, match=str(MAX_DEPTH)):
        check_lark(text)


def test_a_text_that_is_forced_for_seconds_is_refused() -> None:
    check_lark(f'start: "{"a" * (MAX_LITERAL - 2)}"\n')
    with pytest.raises(GrammarTooComplex, match=str(MAX_LITERAL)):
        check_lark(f'start: T\nT: "b" "{"a" * MAX_LITERAL}"\n')
