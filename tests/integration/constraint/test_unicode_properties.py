"""The properties of Unicode against the expressions of Node, which is what ECMA-262 means."""

from __future__ import annotations

import random

from scripts.unicode_properties import FILE, properties

HEAD, *LINES = FILE.read_text(encoding="utf-8").splitlines()


def test_the_code_points_are_those_of_ecma_262() -> None:
    """Where Node knows the same Unicode."""
    own = dict(line.rsplit("=", 1) for line in LINES)
    drawn = [*random.Random(1).sample(sorted(own), 6), "scx=Greek,Grek", "=Alphabetic,Alpha"]
    version, ranges = properties([head.split(",")[0].removeprefix("=") for head in drawn])
    if f"Unicode {version}:" in HEAD:
        assert [own[head].strip() for head in drawn] == ranges
