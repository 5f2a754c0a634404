"""Shows an answer as it comes: text on standard output, thoughts on standard error where somebody watches."""

from __future__ import annotations

from jan_serve.cli.output import Output


class AnswerDisplay:
    """A Reader for one answer. end() must follow it."""

    def __init__(self, output: Output, *, thoughts: bool = True, silent: bool = False) -> None:
        """silent: shows nothing, for an answer that is wanted whole."""
        self._output = output
        self._thoughts = thoughts and output.is_watched and not silent
        self._silent = silent
        self._thinking = False
        self._at_line_start = True
        self._empty = True

    def text(self, piece: str) -> None:
        """Part of Reader."""
        self._end_thought()
        if not self._silent:
            self._output.piece(piece)
            self._empty = False
            self._at_line_start = piece.endswith("\n")

    def thought(self, piece: str) -> None:
        """Part of Reader."""
        if self._thoughts:
            self._thinking = True
            self._output.aside(piece)
            self._at_line_start = piece.endswith("\n")

    def end(self) -> None:
        """The line of the answer ends, however the answer did."""
        self._end_thought()
        if not self._silent and not self._empty and not self._at_line_start:
            self._output.piece("\n")

    def _end_thought(self) -> None:
        if self._thinking:
            self._output.aside("\n" if self._at_line_start else "\n\n")
            self._thinking = False
            self._at_line_start = True
