"""Constrains a sequence to a grammar, and to a rule that the grammar does not have."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Generic, TypeVar

from jan_serve.engine.constraint.grammar_executor import GrammarExecutor
from jan_serve.errors import EngineFailure

S = TypeVar("S")


class RuledExecutor(GrammarExecutor, Generic[S]):
    """`_state`: of the rule, immutable. `_broken`: what was written where a text breaks the rule."""

    _state: S
    _broken: ClassVar[str]

    @abstractmethod
    def _written(self, token: int) -> S | None:
        """The state after a token that the grammar allows; None if the rule does not."""

    def allows(self, token: int) -> bool:
        return super().allows(token) and (self._vocab.is_eog(token) or self._written(token) is not None)

    def accept(self, token: int) -> None:
        """As GrammarExecutor. Raises EngineFailure for a token that neither `allows` nor `mask` lets pass."""
        super().accept(token)
        if self._vocab.is_eog(token):
            return
        written = self._written(token)
        if written is None:
            raise EngineFailure(f"The engine wrote {self._broken}.")
        self._state = written
