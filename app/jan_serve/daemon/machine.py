"""Carries plans out on this machine: writes and removes files, runs the service manager's commands. Blocks."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from jan_serve.daemon.plan import Command, Plan, UnitFile
from jan_serve.store.files.atomic_file import write_atomically

_TIMEOUT_S: Final = 120.0
"""Starting waits until the server listens, stopping until its requests have ended."""

_JUNCTION: Final = 0xA000_0003
"""IO_REPARSE_TAG_MOUNT_POINT."""


class ServiceFailed(Exception):
    """The machine did not do a step; the text says which one and why."""


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended. output: its standard output, or its standard error where that is empty."""

    status: int
    output: str


Run = Callable[[Sequence[str]], Done]


def run_command(words: Sequence[str]) -> Done:
    """Run it without a shell and without input. Raises ServiceFailed where there is no such program."""
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIMEOUT_S, check=False
        )
    except FileNotFoundError:
        raise ServiceFailed(f"there is no {words[0]} on this machine") from None
    except subprocess.TimeoutExpired:
        raise ServiceFailed(f"`{' '.join(words)}` did not end within {_TIMEOUT_S:.0f} s") from None
    except OSError as error:
        raise ServiceFailed(f"`{words[0]}` cannot be run: {error.strerror}") from None
    output = done.stdout if done.stdout.strip() else done.stderr
    return Done(done.returncode, output.decode(errors="replace"))


def apply(plan: Plan, run: Run = run_command) -> list[Path]:
    """Carry a plan out; the value is the files that were written or removed. Raises ServiceFailed."""
    written = [file for file in plan.files if _differs(file)]
    removed = [Path(path) for path in plan.removed if os.path.lexists(path)]
    withdrawn = [Path(file.path) for file in plan.withdrawn if _is_ours(file)]
    if any(not file.keep for file in written) or removed:
        run_all(plan.before, run)
    try:
        for folder in plan.folders:
            Path(folder).mkdir(parents=True, exist_ok=True)
            if plan.protect and _is_link(Path(folder)):
                raise ServiceFailed(
                    f"{folder} is a link, and rights are not set behind one: set data_dir instead"
                )
        run_all(plan.protect, run)
        for file in written:
            write_atomically(Path(file.path), _content(file), mode=0o644)
        for path in (*removed, *withdrawn):
            path.unlink(missing_ok=True)
        for path in withdrawn:
            with contextlib.suppress(OSError):  # the user has files there too
                path.parent.rmdir()
    except OSError as error:
        raise ServiceFailed(f"cannot change {error.filename}: {error.strerror}") from None
    run_all(plan.after, run)
    return [*(Path(file.path) for file in written), *removed, *withdrawn]


def run_all(commands: Sequence[Command], run: Run = run_command) -> None:
    """Run the commands in order. Raises ServiceFailed at the first one that fails and may not."""
    for command in commands:
        done = run(command.words)
        if done.status != 0 and not command.may_fail:
            reason = done.output.strip() or f"exit status {done.status}"
            raise ServiceFailed(f"`{' '.join(command.words)}` failed: {reason}")


def installed_files(plan: Plan) -> list[Path]:
    """The files of an uninstall plan that are there now."""
    return [Path(path) for path in plan.removed if os.path.lexists(path)]


def holds(path: Path, text: str) -> bool:
    """Whether the file is there and has this text in it."""
    try:
        return text in path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


def _is_link(path: Path) -> bool:
    """Junctions of Windows count, which every user can make."""
    return path.is_symlink() or getattr(path.lstat(), "st_reparse_tag", 0) == _JUNCTION


def _differs(file: UnitFile) -> bool:
    path = Path(file.path)
    if file.keep and path.exists():
        return False
    try:
        return path.read_bytes() != _content(file)
    except FileNotFoundError:
        return True
    except OSError as error:
        raise ServiceFailed(f"cannot read {path}: {error.strerror}") from None


def _is_ours(file: UnitFile) -> bool:
    try:
        return Path(file.path).read_bytes() == _content(file)
    except OSError:
        return False


def _content(file: UnitFile) -> bytes:
    text = file.content if file.encoding == "utf-8" else file.content.replace("\n", "\r\n")
    return text.encode(file.encoding)
