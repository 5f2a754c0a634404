"""Trees of messages become a line whose messages have the other branches as versions."""

from __future__ import annotations

import random
from typing import Any

import pytest

from jan_serve.api.chats.branches import Node, line_of
from jan_serve.errors import InvalidRequest

Row = tuple[str, str, bool]


def nodes(*rows: str) -> dict[str, Node]:
    """Each as `name<parent`; one in brackets is not shown."""
    made = dict[str, Node]()
    for row in rows:
        name, _, parent = row.partition("<")
        made[name.strip("()")] = Node(parent, None if name.startswith("(") else {"id": name})
    return made


def shown(line: list[dict[str, Any]]) -> str:
    """As `a b{c d}@1 e`: b is number 1, and has another version c, which d follows."""
    words = list[str]()
    for message in line:
        versions = "".join("{" + shown(tail) + "}" for tail in message.get("versions", []))
        number = f"@{message['version']}" if "version" in message else ""
        words.append(message["id"] + versions + number)
    return " ".join(words)


TREES: dict[str, tuple[list[str], str, str]] = {
    "a line": (["a<", "b<a", "c<b"], "c", "a b c"),
    "the leaf is not the last": (["a<", "b<a", "c<b"], "b", "a b c"),
    "two answers": (["a<", "b<a", "c<a"], "b", "a b{c@1}@0"),
    "no leaf": (["a<", "b<a", "c<a"], "", "a c{b@0}@1"),
    "an unknown leaf": (["a<", "b<a", "c<a"], "x", "a c{b@0}@1"),
    "two questions": (["a<", "b<a", "c<", "d<c"], "b", "a{c@1 d}@0 b"),
    "branches of branches": (["a<", "b<a", "c<a", "d<c", "e<c"], "b", "a b{c@1 e{d@0}@1}@0"),
    "a hidden root": (["(r)<", "a<r", "b<a"], "b", "a b"),
    "hidden ones between": (["(r)<", "(s)<r", "a<s", "(t)<a", "(u)<t", "b<u", "c<t"], "b", "a b{c@1}@0"),
    "a hidden leaf": (["a<", "b<a", "c<a", "(d)<b"], "d", "a b{c@1}@0"),
    "an unknown parent": (["a<x", "b<a"], "b", "a b"),
    "a circle": (["a<b", "b<a", "c<"], "a", "c"),
    "a circle of hidden ones": (["(a)<b", "(b)<a", "c<a"], "c", "c"),
    "its own parent": (["a<a", "b<"], "a", "b"),
    "nothing": ([], "", ""),
}


@pytest.mark.parametrize("name", TREES)
def test_a_tree_becomes_a_line_with_versions(name: str) -> None:
    rows, leaf, expected = TREES[name]
    assert shown(line_of(nodes(*rows), leaf)) == expected


def test_every_message_of_any_tree_is_there_once() -> None:
    for seed in range(30):
        draw = random.Random(seed)
        names = [f"n{number}" for number in range(12)]
        rows = [f"{name}<{draw.choice(['', *names[:at]])}" for at, name in enumerate(names)]
        draw.shuffle(rows)
        words = shown(line_of(nodes(*rows), draw.choice(names)))
        assert sorted(word.strip("{}").split("@")[0] for word in words.replace("{", " ").replace("}", " ").split()
                      if word.startswith("n")) == sorted(names)  # fmt: skip


def test_long_lines_and_wide_forks_take_no_stack_and_no_square() -> None:
    long = [f"n{number}<n{number - 1}" if number else "n0<" for number in range(50_000)]
    assert len(line_of(nodes(*long), "")) == 50_000
    hidden = [f"(n{number})<n{number - 1}" for number in range(50_000)] + [f"m{at}<n49999" for at in range(9)]
    assert len(line_of(nodes(*hidden), "")[0]["versions"]) == 8


def test_branches_of_branches_have_a_limit() -> None:
    rows = ["n0<"]
    for number in range(1, 60):
        rows += [f"n{number}<n{number - 1}", f"m{number}<n{number - 1}"]
    with pytest.raises(InvalidRequest, match="24 branches"):
        line_of(nodes(*rows), "")
    assert line_of(nodes(*rows), "n59")
