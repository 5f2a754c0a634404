"""Exception to message, next step and exit status: the one place. EXIT_STATUSES says what each means."""

from __future__ import annotations

import traceback
from typing import Final

from jan_serve.cli.interrupts import INTERRUPTED
from jan_serve.cli.output import Output
from jan_serve.errors import (
    HubAccessDenied,
    HubError,
    HubNotFound,
    HubUnavailable,
    InsufficientMemory,
    InsufficientStorage,
    InvalidModel,
    InvalidRequest,
    JanServeError,
    ModelFailed,
    ModelNotFound,
    Offline,
    SettingsError,
    StoreError,
)

FAILED: Final = 1
WRONG_USE: Final = 2
NO_SERVER: Final = 3

EXIT_STATUSES: Final = {
    0: "Done.",
    FAILED: "It failed: the message says why, and what to do next. Without a message: the reader of the output left.",
    WRONG_USE: "Wrong use: an argument, a setting, a key or a name that is not known. The same again will not help.",
    NO_SERVER: "No server answers, or it went away. Of commands that ask the running server.",
    INTERRUPTED: "Ctrl-C.",
}


class CommandError(Exception):
    """A command cannot do what it was asked for. Never crosses a pipe or HTTP, so it is not in the `errors` tree."""

    def __init__(self, message: str, next_step: str | None = None, status: int = FAILED) -> None:
        super().__init__(message)
        self.message = message
        self.next_step = next_step
        self.status = status


_NEXT_STEPS: Final[tuple[tuple[type[JanServeError], int, str | None], ...]] = (
    (SettingsError, WRONG_USE, "`jan-serve config` shows every setting and where its value comes from."),
    (ModelNotFound, WRONG_USE, "--models-dir names another folder."),
    (InvalidRequest, WRONG_USE, "`jan-serve ls` lists the models."),
    (
        HubNotFound,
        WRONG_USE,
        "Look at the hub's page for the exact name; `jan-serve pull --list` shows suggestions.",
    ),
    (HubAccessDenied, FAILED, "`jan-serve config` shows where the token comes from (setting hf_token)."),
    (
        HubError,
        FAILED,
        "Try again; if it stays so, the hub or a proxy on the way to it changes what it sends.",
    ),
    (
        Offline,
        FAILED,
        "Models that are here work without a network: `jan-serve ls`. A mirror is set with HF_ENDPOINT.",
    ),
    (
        HubUnavailable,
        FAILED,
        "Run the same command later: what was downloaded is kept, and it goes on from there.",
    ),
    (
        InsufficientStorage,
        FAILED,
        "Make room, choose a smaller quantisation, or another folder with --models-dir.",
    ),
    (StoreError, FAILED, "`jan-serve doctor` looks at the folders; --models-dir names another one."),
    (InvalidModel, FAILED, "Download the file again, or convert it again with llama.cpp's tools."),
    (InsufficientMemory, FAILED, "Use a smaller --n-ctx, a smaller quantisation, or close other programs."),
    (ModelFailed, FAILED, "`jan-serve doctor` shows whether llama.cpp and its devices work."),
)


def advice(code: str) -> tuple[str | None, int] | None:
    """The next step and the exit status for an error of the server, by its code; None where there is none."""
    for kind, status, next_step in _NEXT_STEPS:
        if kind.code == code and kind is not InvalidRequest:
            return next_step, status
    return None


def report(error: BaseException, output: Output) -> int:
    """Say what went wrong and what to do; the value is the exit status. A bug of ours shows its traceback."""
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else 0 if error.code is None else FAILED
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, BrokenPipeError):
        return FAILED
    if isinstance(error, CommandError):
        output.error(error.message, error.next_step)
        return error.status
    if isinstance(error, JanServeError):
        for kind, status, next_step in _NEXT_STEPS:
            if isinstance(error, kind):
                output.error(error.message, next_step)
                return status
        output.error(error.message)
        return FAILED
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename is not None else ""
        output.error(f"{place}{error.strerror or error}")
        return FAILED
    output.error(
        f"unexpected {type(error).__name__}: {error}", "This is a bug in jan-serve. Please report it with:"
    )
    for line in "".join(traceback.format_exception(error)).splitlines():
        output.note(line)
    return FAILED
