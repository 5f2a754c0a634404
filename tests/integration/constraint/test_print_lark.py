"""Lark text whose references and groups lie deep: llguidance compiles it in a process of its own, on a small stack."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from jan_serve.constraint.ast import Grammar
from jan_serve.constraint.lark.print_lark import print_lark
from jan_serve.constraint.parse_gbnf import parse_gbnf
from jan_serve.constraint.regex.language import translate as regex_to_grammar
from tests.unit.constraint.grammars import grammar_alone, grammar_in_rules

STACK_BYTES = 16 << 20
COMPILE = f"""
import json, sys, threading
from tests.conformance.llguidance_oracle import LlguidanceOracle

judged = []

def judge():
    case = json.load(sys.stdin)
    oracle = LlguidanceOracle()
    matcher = oracle.compile(case["lark"])
    judged.append([oracle.accepts(matcher, text) for text in case["texts"]])

threading.stack_size({STACK_BYTES})
thread = threading.Thread(target=judge)
thread.start()
thread.join()
if not judged:
    sys.exit("the thread failed")
print(json.dumps(judged[0]))
"""


def chain(rules: int) -> Grammar:
    """Rules of one character each, one after the other."""
    lines = [f'r{i} ::= "x" r{i + 1}' for i in range(rules)]
    return parse_gbnf("\n".join(["root ::= r0", *lines, f'r{rules} ::= "y"']))


def loop(rules: int) -> Grammar:
    """As `chain`, and back to the first rule."""
    lines = [f'r{i} ::= "x" r{i + 1} | "z"' for i in range(rules)]
    return parse_gbnf("\n".join(["root ::= r0", *lines, f'r{rules} ::= "y" root']))


def nested(levels: int) -> str:
    """Optional groups in one another."""
    return '("a" | "b" ' * levels + '"c"' + ")?" * levels


def names(count: int, value: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {f"p{i}": value for i in range(count)}}


DEEP: dict[str, tuple[Grammar, list[str], list[str]]] = {
    "chain of rules": (chain(4000), ["x" * 4000 + "y"], ["x" * 3999 + "y", "x", ""]),
    "loop of rules": (loop(1000), ["z", "xz", "x" * 1000 + "yz"], ["x" * 1000 + "y", ""]),
    "groups": (parse_gbnf(f"root ::= {nested(60)}"), ["", "a", "b" * 60 + "c", "bba"], ["b" * 59 + "c", "d"]),
    "groups of a token": (regex_to_grammar("(a|b" * 90 + "c" + ")?" * 90), ["a", "b" * 90 + "c"], ["c"]),
    "optional properties": (
        grammar_alone(names(500, {"type": "integer"})),
        ["{}", '{"p499": 3}', '{"p7": 1, "p400": 2, "q": 4}'],
        ['{"p499": "x"}', '{"p400": 2, "p7": 1}'],
    ),
    "recursive properties": (
        grammar_alone(names(400, {"$ref": "#"})),
        ['{"p3": {"p399": {"p3": {}}}}'],
        ['{"p3": {"p399": 1}}', '{"p399": 1}'],
    ),
    "fewest properties": (
        grammar_in_rules({"type": "object", "minProperties": 3900})[0],
        ["{" + ", ".join(f'"{i}": 1' for i in range(3900)) + "}"],
        ["{}", "{" + ", ".join(f'"{i}": 1' for i in range(3899)) + "}"],
    ),
    "most properties": (grammar_alone({"type": "object", "maxProperties": 3900}), ["{}", '{"a": 1}'], ["[]"]),
    "positional items": (
        grammar_alone({"type": "array", "prefixItems": [{"type": "integer"}] * 5000}),
        ["[]", "[1, 2]", json.dumps([7] * 300)],
        ['["a"]', json.dumps([7] * 300 + ["a"])],
    ),
    "counted letters": (regex_to_grammar("(a?b?c){600}"), ["abc" * 600, "c" * 600], ["c" * 599, "abc" * 601]),
}


@pytest.mark.parametrize("name", DEEP)
def test_deep_text_is_compiled_on_a_small_stack(name: str) -> None:
    grammar, accept, reject = DEEP[name]
    case = json.dumps({"lark": print_lark(grammar), "texts": [*accept, *reject]})
    done = subprocess.run(
        [sys.executable, "-c", COMPILE], input=case, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-500:]
    assert json.loads(done.stdout) == [True] * len(accept) + [False] * len(reject)
