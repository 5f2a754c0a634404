"""Line editor of an interactive chat on prompt_toolkit: multiline input, history, completion of commands."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.shortcuts import CompleteStyle

from jan_serve.cli.chat.request_options import PARAMETERS
from jan_serve.cli.chat.session import is_complete
from jan_serve.cli.chat.slash_commands import COMMANDS
from jan_serve.store.files import private_folder

_PROMPT: Final = ">>> "
_NEXT_LINE: Final = "... "
_MAX_HISTORY_BYTES: Final = 1 << 20


class LineEditor:
    """names: returns the models for completion after `/model`."""

    def __init__(self, history_file: Path | None, names: Callable[[], Sequence[str]]) -> None:
        self._session: PromptSession[str] = PromptSession(
            history=_history(history_file),
            completer=_CommandCompleter(names),
            complete_while_typing=False,
            complete_style=CompleteStyle.READLINE_LIKE,
            key_bindings=_bindings(),
            multiline=True,
            prompt_continuation=_NEXT_LINE,
            enable_open_in_editor=True,
        )

    def read(self) -> str:
        """Read one input. Blocks. Raises KeyboardInterrupt at Ctrl-C and EOFError at Ctrl-D on an empty line."""
        return self._session.prompt(_PROMPT)


def _bindings() -> KeyBindings:
    bindings = KeyBindings()

    def on_enter(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if is_complete(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.newline(copy_margin=False)

    def on_alt_enter(event: KeyPressEvent) -> None:
        event.current_buffer.newline(copy_margin=False)

    bindings.add("enter")(on_enter)
    bindings.add("escape", "enter")(on_alt_enter)
    return bindings


class _CommandCompleter(Completer):
    def __init__(self, names: Callable[[], Sequence[str]]) -> None:
        self._names = names

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        line = document.text_before_cursor
        word, blank, rest = line.partition(" ")
        if not line.startswith("/") or "\n" in line:
            return
        if not blank:
            options: Iterable[str] = COMMANDS
            start = word
        else:
            options = {"/set": PARAMETERS, "/unset": PARAMETERS}.get(word, ())
            options = self._names() if word == "/model" else options
            start = rest
        for option in options:
            if option.startswith(start):
                yield Completion(option, start_position=-len(start))


def _history(path: Path | None) -> History:
    """History in a file with mode 0600; in memory if there is no path or the file is not writable."""
    if path is None:
        return InMemoryHistory()
    try:
        private_folder(path.parent)
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
        _trim(path)
    except OSError:
        return InMemoryHistory()
    return FileHistory(path)


def _trim(path: Path) -> None:
    """Drop the older half of a history that is too large. Each entry begins with a line `# ` and its time."""
    if path.stat().st_size <= _MAX_HISTORY_BYTES:
        return
    content = path.read_bytes()
    start = content.find(b"\n# ", len(content) // 2)
    path.write_bytes(content[start:] if start >= 0 else b"")
