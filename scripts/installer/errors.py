"""Failures of an installation, each told in one line that says what to do."""

from __future__ import annotations

import errno
import re
from pathlib import Path
from typing import Final

AGAIN: Final = "then run the same command again"

# What tools print for a cause, most telling first, and what to do about it.
_CAUSES: Final = (
    (
        r"No space left on device|Disk quota exceeded|os error 28\b|NoSpaceLeft",
        f"the disk is full: free 3 GB, or name a folder on another disk in TMPDIR, {AGAIN}",
    ),
    (
        r"DO NOT MATCH THE HASHES|[Hh]ash mismatch",
        "a download differs from its pinned hash and was not installed: the package index, or something on the way to "
        "it, changes files",
    ),
    (
        r"Read-only file system|Permission denied|os error (?:13|30)\b",
        f"a folder cannot be written: make the checkout writable, and name writable folders in TMPDIR and "
        f"XDG_CACHE_HOME, {AGAIN}",
    ),
    (
        r"NewConnectionError|NameResolutionError|ConnectTimeoutError|ReadTimeoutError|ProxyError|SSLError"
        r"|Temporary failure in name resolution|Network is unreachable|Connection refused|Connection reset"
        r"|error sending request|Failed to fetch|dns error|Could not connect"
        r"|No matching distribution found|Could not fetch URL",
        f"the package index cannot be reached: check the network (HTTPS_PROXY names a proxy, PIP_INDEX_URL another "
        f"index), {AGAIN}",
    ),
    (
        r"signal terminated program|Killed signal|\bKilled\b|out of memory|OutOfMemory|Cannot allocate memory",
        f"a process was ended, probably because memory was short: set CMAKE_BUILD_PARALLEL_LEVEL=1, {AGAIN}",
    ),
    (
        r"CMAKE_CXX_COMPILER not set|No CMAKE_CXX_COMPILER could be found|No CMAKE_C_COMPILER could be found",
        f"there is no C++ compiler: install one (Debian: apt install g++, macOS: xcode-select --install), {AGAIN}",
    ),
)


class InstallError(Exception):
    """Ends an installation. str() is one line for people: what failed, and what to do."""


def of_output(what: str, output: str, log: Path) -> InstallError:
    """The error of a command that failed. what: its task, in words; log: where all of its output is."""
    for pattern, advice in _CAUSES:
        if re.search(pattern, output):
            return InstallError(f"{what} failed: {advice} (details: {log})")
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    reason = next((line for line in reversed(lines) if re.search(r"\berror\b", line, re.IGNORECASE)), None)
    last = reason or (lines[-1] if lines else "it printed nothing")
    return InstallError(f"{what} failed: {last[:200]} (details: {log})")


def of_os_error(what: str, error: OSError) -> InstallError:
    """The error of a file operation."""
    for number in (error.errno, {errno.EDQUOT: errno.ENOSPC}.get(error.errno or 0)):
        for pattern, advice in _CAUSES:
            if number is not None and re.search(pattern, f"os error {number} "):
                return InstallError(f"{what} failed: {error.filename or error}: {advice}")
    return InstallError(f"{what} failed: {error}")
