"""Remembers the nodes over restarts of the proxy. A file of a later format is kept beside it (`fleet.json.v2`)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec
from filelock import FileLock, Timeout

from jan_serve.errors import SettingsError
from jan_serve.fleet.node import Node
from jan_serve.store.files import (
    FORMAT,
    LaterFormat,
    check_format,
    private_folder,
    read_limited,
    write_atomically,
)

logger = logging.getLogger(__name__)

DELAY_S: Final = 1.0
_MAX_DELAY_S: Final = 60.0
"""Between two tries at a file that cannot be written."""
MAX_BYTES: Final = 64 << 20
_ADVICE: Final = "give this proxy --fleet-file FILE or --forget"


class NodeRecord(msgspec.Struct, frozen=True):
    url: str
    role: int
    models: list[str]
    speed: float | None = None
    declares: bool = False


class _Content(msgspec.Struct, frozen=True):
    version: int
    nodes: list[NodeRecord]


class FleetFile:
    """Written a second after a change at the earliest, in one thread at a time. A lock keeps other proxies off."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = FileLock(path.with_name(path.name + ".lock"), mode=0o600)
        self._writing: asyncio.Task[None] | None = None
        self._latest: bytes | None = None
        """What is not in the file yet."""
        self._closing = asyncio.Event()

    def open(self) -> tuple[list[NodeRecord], str | None]:
        """Take the file and read it; a message for the user if it was set aside. Blocks.

        Raises SettingsError if another proxy has it, or if it cannot be used.
        """
        try:
            private_folder(self._path.parent)
            self._lock.acquire(timeout=0)
        except Timeout:
            raise SettingsError(f"another proxy uses {self._path}: {_ADVICE}") from None
        except OSError as error:
            raise SettingsError(f"{self._path} cannot be used: {error.strerror}: {_ADVICE}") from None
        try:
            return _read(self._path), None
        except FileNotFoundError:
            return [], None
        except OSError as error:
            raise SettingsError(f"{self._path} cannot be read: {error.strerror}: {_ADVICE}") from None
        except LaterFormat as later:
            why = f"is from a newer version of jan-serve (format {later.found})"
            return [], self._set_aside(f"v{later.found}", why)
        except ValueError as error:
            return [], self._set_aside("damaged", str(error))

    def save(self, nodes: Iterable[Node]) -> None:
        """Write soon. A file that cannot be written is logged: the proxy works without it."""
        records = [
            NodeRecord(node.url, int(node.role), list(node.models), node.speed, node.declares)
            for node in nodes
        ]
        self._latest = msgspec.json.format(msgspec.json.encode(_Content(FORMAT, records)))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_soon(), name="fleet file")

    async def close(self) -> None:
        """Write what is waiting, and give the file back."""
        self._closing.set()
        if self._writing is not None:
            await self._writing
        self._lock.release()

    async def _write_soon(self) -> None:
        """Tries until the latest content is in the file, or the file is closed."""
        delay_s = DELAY_S
        while self._latest is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay_s):
                    await self._closing.wait()
            content = self._latest
            try:
                await asyncio.to_thread(write_atomically, self._path, content, mode=0o600)
            except Exception as error:
                if delay_s == DELAY_S:  # the first in a row
                    logger.warning("%s cannot be written: %s", self._path, error)
                delay_s = min(_MAX_DELAY_S, 2 * delay_s)
                if self._closing.is_set():
                    return
            else:
                delay_s = DELAY_S
                self._latest = None if self._latest is content else self._latest

    def _set_aside(self, suffix: str, why: str) -> str:
        target = self._path.with_name(f"{self._path.name}.{suffix}")
        try:
            self._path.replace(target)
        except OSError as error:
            raise SettingsError(
                f"{self._path} {why}, and it cannot be moved: {error.strerror}: {_ADVICE}"
            ) from None
        return f"{self._path} {why}: it is {target.name} now, and the proxy starts anew"


def _read(path: Path) -> list[NodeRecord]:
    """Raises OSError, ValueError, LaterFormat."""
    content = read_limited(path, MAX_BYTES)
    try:
        values = msgspec.json.decode(content, type=dict[str, Any])
        check_format(values, "version")
        return msgspec.convert(values, _Content).nodes
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"is not a list of nodes ({error})") from None
