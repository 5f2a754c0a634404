"""Maps exceptions to a message, a next step and an exit status."""

from __future__ import annotations

import traceback
from typing import Final

from jan_serve.cli.interrupts import INTERRUPTED
from jan_serve.cli.output import output
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
    FAILED: "Failure: the message gives the reason and a next step. No message: the reader of the output closed it.",
    WRONG_USE: "Wrong usage: an invalid argument or setting, a wrong API key, an unknown name. Retrying does not help.",
    NO_SERVER: "No server answers, or it broke the connection (commands that use the running server).",
    INTERRUPTED: "Interrupted with Ctrl-C.",
}


class CommandError(Exception):
    """A command failed. Never crosses a pipe or HTTP, so it is not in the tree of `jan_serve.errors`."""

    def __init__(self, message: str, next_step: str | None = None, status: int = FAILED) -> None:
        super().__init__(message)
        self.message = message
        self.next_step = next_step
        self.status = status


class WrongUse(CommandError):
    """An invalid argument, setting or name."""

    def __init__(self, message: str, next_step: str | None = None) -> None:
        super().__init__(message, next_step, WRONG_USE)


_NEXT_STEPS: Final[tuple[tuple[type[JanServeError], int, str | None], ...]] = (
    (SettingsError, WRONG_USE, "`jan-serve config` shows every setting and its source."),
    (ModelNotFound, WRONG_USE, "Use --models-dir to choose another folder."),
    (InvalidRequest, WRONG_USE, "`jan-serve ls` lists the models."),
    (HubNotFound, WRONG_USE, "Check the exact name on the hub; `jan-serve pull --list` shows suggestions."),
    (HubAccessDenied, FAILED, "`jan-serve config` shows the source of the token (setting hf_token)."),
    (HubError, FAILED, "Try again. If it fails again, the hub or a proxy alters the answers."),
    (
        Offline,
        FAILED,
        "Local models work without a network: `jan-serve ls` lists them. HF_ENDPOINT sets a mirror.",
    ),
    (HubUnavailable, FAILED, "Run the same command later: the download resumes."),
    (
        InsufficientStorage,
        FAILED,
        "Free some space, choose a smaller quantisation, or use another folder with --models-dir.",
    ),
    (StoreError, FAILED, "`jan-serve doctor` checks the folders; --models-dir chooses another one."),
    (InvalidModel, FAILED, "Download the file again, or convert it again with the tools of llama.cpp."),
    (InsufficientMemory, FAILED, "Use a smaller --n-ctx or a smaller quantisation, or close other programs."),
    (ModelFailed, FAILED, "`jan-serve doctor` shows whether llama.cpp and its devices work."),
)


def advice(code: str) -> tuple[str | None, int] | None:
    """Next step and exit status for the error code of a server; None for an unknown code."""
    for kind, status, next_step in _NEXT_STEPS:
        if kind.code == code and kind is not InvalidRequest:
            return next_step, status
    return None


def report(error: BaseException) -> int:
    """Print the error, with a next step or, if unexpected, a traceback. Returns the exit status."""
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
        prefix = f"{error.filename}: " if error.filename is not None else ""
        output.error(f"{prefix}{error.strerror or error}")
        return FAILED
    output.error(
        f"unexpected {type(error).__name__}: {error}", "This is a bug in jan-serve. Please report it with:"
    )
    for line in "".join(traceback.format_exception(error)).splitlines():
        output.note(line)
    return FAILED
