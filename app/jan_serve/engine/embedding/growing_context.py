"""A context beside the engine's own, as large as the longest job so far."""

from __future__ import annotations

from collections.abc import Callable

from jan_serve.engine.llama.context import LlamaContext


class GrowingContext:
    """Makes a context on first use, and a larger one in its place where a job needs more cells. One thread."""

    def __init__(self, create: Callable[[int], LlamaContext], least: int = 0) -> None:
        """create: makes a context of this many cells; raises InsufficientMemory.

        least: cells at least: a context takes no longer batches than it has cells, and later jobs reuse it.
        """
        self._create = create
        self._least = least
        self.current: LlamaContext | None = None

    def open(self, cells: int) -> LlamaContext:
        """The context, empty if it is a new one. Raises InsufficientMemory."""
        cells = max(cells, self._least)
        if self.current is not None and self.current.n_ctx < cells:
            self.current.close()
            self.current = None
        if self.current is None:
            self.current = self._create(cells)
        return self.current
