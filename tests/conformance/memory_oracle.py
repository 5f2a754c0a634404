"""llguidance and the memory of unique items as a judge."""

from __future__ import annotations

from typing import Any

from jan_serve.core.text_memory import TextMemory
from jan_serve.engine.constraint.json_memory import JsonMemory, State
from tests.conformance.llguidance_oracle import LlguidanceOracle


class MemoryOracle:
    """As LlguidanceOracle, for grammars with a memory."""

    def __init__(self) -> None:
        self._oracle = LlguidanceOracle()

    def compile(self, lark: str, memory: TextMemory) -> tuple[Any, JsonMemory]:
        """Raises ValueError where llguidance refuses the grammar."""
        return self._oracle.compile(lark), JsonMemory(memory)

    def accepts(self, compiled: tuple[Any, JsonMemory], text: str) -> bool:
        """Whether the text is complete."""
        matcher, memory = compiled
        return self._oracle.accepts(matcher, text) and memory.written(State(), text.encode()) is not None

    def release(self, compiled: tuple[Any, JsonMemory]) -> None:
        """Nothing is held outside of Python."""
