"""The budgets that bound what one constraint may cost. Every limit that a user can meet is named here."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

from jan_serve.errors import GrammarTooComplex

MAX_PATTERN_LENGTH = 20_000
MAX_PATTERN_NESTING = 100
MAX_PATTERN_COUNT = 100_000
MAX_COUNT = 100_000_000
MAX_NFA_STATES = 20_000
MAX_DFA_STATES = 4_000
MAX_PRODUCT_STATES = 12_000
MAX_SCHEMA_DEPTH = 200
MAX_IN_PLACE_DEPTH = 60
MAX_SPECS = 400
MAX_RULES = 10_000
MAX_GRAMMAR_BYTES = 1_000_000
MAX_GRAMMAR_NESTING = 60
MAX_PRINTED_BYTES = 1_500_000
# llguidance refuses terminals of about this size.
MAX_LARK_BYTES = 1_000_000
MAX_LEFT_CHAIN = 500
# llguidance compiles a reference within a reference with 3.3 KB of stack. The engine refuses 2,000 and groups together.
MAX_REFERENCE_DEPTH = 1_000
# llguidance refuses 29 groups within one another.
MAX_LARK_GROUPS = 12
MAX_STEPS = 150_000

_left: ContextVar[list[int] | None] = ContextVar("grammar_budget", default=None)
_spent: ContextVar[int] = ContextVar("grammar_steps", default=0)


@contextmanager
def budget(steps: int = MAX_STEPS) -> Generator[None]:
    """Bound the work inside the block, which is one translation."""
    left = [steps]
    token = _left.set(left)
    try:
        yield
    finally:
        _left.reset(token)
        _spent.set(steps - left[0])


@contextmanager
def uncharged() -> Generator[None]:
    """No budget inside the block: its bounded work is the same for all constraints, and done once for a process."""
    token = _left.set(None)
    try:
        yield
    finally:
        _left.reset(token)


def spent() -> int:
    """The steps of the last translation, finished or refused."""
    return _spent.get()


def spend(steps: int = 1) -> None:
    """Count work: a step is about two microseconds. Raises GrammarTooComplex once the budget is used up."""
    left = _left.get()
    if left is not None:
        left[0] -= steps
        if left[0] < 0:
            raise GrammarTooComplex("the constraint needs more work than one request may use")
