"""Keeps steps at the size of a captured graph, since devices replay it many times faster than they begin another.

vLLM pads batches to captured sizes for the same reason.
"""

from __future__ import annotations

from jan_serve.engine.scheduling.step_costs import StepCosts


class GraphPadding:
    """Pads steps as long as drafts have gained more time than that costs.

    `rows` before a step, `accept` after it.
    """

    def __init__(self, costs: StepCosts) -> None:
        self._costs = costs
        self._gained_s = 0.0
        self._most_s = 0.0
        self._token_s = 0.0

    def rows(self, num_tokens: int) -> int:
        """The size that the step should keep; `num_tokens`, its size without drafts, if there is none."""
        kept = self._costs.decode.captured_rows
        plain_s = self._costs.decode_s(num_tokens)
        self._most_s = self._costs.decode.change_s(num_tokens)
        self._token_s = plain_s / num_tokens
        # What a new size costs is known after its third step; until then, it is kept if the draft was right at all.
        loss_s = self._costs.decode_s(kept) - plain_s if self._costs.decode.has_settled(kept) else 0.0
        if kept <= num_tokens or loss_s >= self._gained_s:
            self._gained_s = 0.0
            return num_tokens
        self._gained_s -= loss_s
        return kept

    def accept(self, tokens: int) -> None:
        """Accepted ones of the step. More than the return to plain steps costs is never spent on padding."""
        self._gained_s = min(self._most_s, self._gained_s + tokens * self._token_s)
