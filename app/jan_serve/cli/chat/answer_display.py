"""Prints a streamed answer: text on standard output, reasoning on standard error if that is a terminal."""

from __future__ import annotations

from jan_serve.cli.output import Output


class AnswerDisplay:
    """One answer; call end() after it."""

    def __init__(self, output: Output, *, silent: bool = False) -> None:
        """silent: print nothing; the caller prints the complete answer."""
        self._output = output
        self._show_reasoning = output.notes_on_terminal and not silent
        self._silent = silent
        self._in_reasoning = False
        self._at_line_start = True
        self._empty = True

    def text(self, piece: str) -> None:
        self._end_reasoning()
        if not self._silent:
            self._output.piece(piece)
            self._empty = False
            self._at_line_start = piece.endswith("\n")

    def reasoning(self, piece: str) -> None:
        if self._show_reasoning:
            self._in_reasoning = True
            self._output.aside(piece)
            self._at_line_start = piece.endswith("\n")

    def end(self) -> None:
        """End the line, also after a failure."""
        self._end_reasoning()
        if not self._silent and not self._empty and not self._at_line_start:
            self._output.piece("\n")

    def _end_reasoning(self) -> None:
        if self._in_reasoning:
            self._output.aside("\n" if self._at_line_start else "\n\n")
            self._in_reasoning = False
            self._at_line_start = True
