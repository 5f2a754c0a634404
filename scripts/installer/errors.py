"""Failures of an installation, each told in one line that says what to do."""

from __future__ import annotations

import errno
import re
from enum import Enum, auto
from pathlib import Path
from typing import Final

AGAIN: Final = "then run the same command again"


class Cause(Enum):
    """Why a step failed, if that decides what is tried next."""

    FULL_DISK = auto()
    NO_NETWORK = auto()
    OTHER = auto()


# What tools print for a cause, most telling first, and what to do about it.
_CAUSES: Final = (
    (
        Cause.FULL_DISK,
        r"No space left on device|Disk quota exceeded|os error 28\b|NoSpaceLeft",
        f"the disk is full: free 3 GB where the checkout, TMPDIR and XDG_CACHE_HOME are, or name folders on another "
        f"disk in these two, {AGAIN}",
    ),
    (
        Cause.OTHER,
        r"DO NOT MATCH THE HASHES|[Hh]ash mismatch",
        "a download differs from its pinned hash and was not installed: the package index, or something on the way to "
        "it, changes files",
    ),
    (
        Cause.OTHER,
        r"Read-only file system|Permission denied|os error (?:13|30)\b",
        f"a folder cannot be written: make the checkout writable, and name writable folders in TMPDIR and "
        f"XDG_CACHE_HOME, {AGAIN}",
    ),
    (
        Cause.NO_NETWORK,
        r"NewConnectionError|NameResolutionError|ConnectTimeoutError|ReadTimeoutError|ProxyError|SSLError"
        r"|Temporary failure in name resolution|Network is unreachable|Connection refused|Connection reset"
        r"|error sending request|Failed to fetch|dns error|Could not connect"
        r"|Could not fetch URL",
        f"the package index cannot be reached: check the network (HTTPS_PROXY names a proxy, PIP_INDEX_URL another "
        f"index), {AGAIN}",
    ),
    (
        Cause.OTHER,
        r"No matching distribution found|No solution found",
        f"the package index lacks a pinned version: name another index in PIP_INDEX_URL, {AGAIN}",
    ),
    (
        Cause.OTHER,
        r"signal terminated program|Killed signal|\bKilled\b|out of memory|OutOfMemory|Cannot allocate memory",
        f"a process was ended, probably because memory was short: set CMAKE_BUILD_PARALLEL_LEVEL=1, {AGAIN}",
    ),
    (
        Cause.OTHER,
        r"CMAKE_CXX_COMPILER not set|No CMAKE_CXX_COMPILER could be found|No CMAKE_C_COMPILER could be found",
        f"there is no C++ compiler: install one (Debian: apt install g++, macOS: xcode-select --install), {AGAIN}",
    ),
)


class InstallError(Exception):
    """Ends an installation. str() is one line for people: what failed, and what to do."""

    def __init__(self, message: str, cause: Cause = Cause.OTHER) -> None:
        super().__init__(message)
        self.cause = cause


def of_output(what: str, output: str, log: Path) -> InstallError:
    """The error of a command that failed. what: its task, in words; log: where all of its output is."""
    for cause, pattern, advice in _CAUSES:
        if re.search(pattern, output):
            return InstallError(f"{what} failed: {advice} (details: {log})", cause)
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    reason = next((line for line in reversed(lines) if re.search(r"\berror\b", line, re.IGNORECASE)), None)
    last = reason or (lines[-1] if lines else "it printed nothing")
    return InstallError(f"{what} failed: {last[:200]} (details: {log})")


def of_os_error(what: str, error: OSError) -> InstallError:
    """The error of a file operation."""
    for number in (error.errno, {errno.EDQUOT: errno.ENOSPC}.get(error.errno or 0)):
        for cause, pattern, advice in _CAUSES:
            if number is not None and re.search(pattern, f"os error {number} "):
                return InstallError(f"{what} failed: {error.filename or error}: {advice}", cause)
    return InstallError(f"{what} failed: {error}")
