"""A draft of one sequence for one step."""

from __future__ import annotations

import msgspec

from jan_serve.engine.tokens import Tokens


class Draft(msgspec.Struct, frozen=True):
    """Tokens to compute after the newest one. The first `guessed` are expected, the others only fill the step.

    match_length: of the look-up; None: the draft model guessed.
    """

    tokens: Tokens
    guessed: int
    match_length: int | None = None
