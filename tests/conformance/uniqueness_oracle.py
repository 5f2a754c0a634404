"""llguidance and the memory of unique items as a judge."""

from __future__ import annotations

from typing import Any

from jan_serve.core.uniqueness import Uniqueness
from jan_serve.text.uniqueness.check import State, UniquenessCheck
from tests.conformance.llguidance_oracle import LlguidanceOracle


class UniquenessOracle:
    """As LlguidanceOracle, for grammars with a memory."""

    def __init__(self) -> None:
        self._oracle = LlguidanceOracle()

    def compile(self, lark: str, memory: Uniqueness) -> tuple[Any, UniquenessCheck]:
        """Raises ValueError where llguidance refuses the grammar."""
        return self._oracle.compile(lark), UniquenessCheck(memory)

    def accepts(self, compiled: tuple[Any, UniquenessCheck], text: str) -> bool:
        """Whether the text is complete."""
        matcher, memory = compiled
        return self._oracle.accepts(matcher, text) and memory.written(State(), text.encode()) is not None

    def release(self, compiled: tuple[Any, UniquenessCheck]) -> None:
        """Nothing is held outside of Python."""
