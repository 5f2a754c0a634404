"""What `jan-serve selfcheck` measured on this machine, one small file for each version of jan-serve.

A version writes its own file alone, so neither an upgrade nor a downgrade loses what another one recorded.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any, Final

import msgspec

from jan_serve.store.files.atomic_file import write_atomically
from jan_serve.store.versions import LaterVersion, Steps, latest, upgrade

_MAX_BYTES: Final = 1 << 16
_SLOWER: Final = 0.5
"""Other work on the machine explains more than that."""
_LESS_MEMORY: Final = 0.5
SELF_CHECK_STEPS: Steps = {}
"""See `versions`."""

_log: Final = logging.getLogger(__name__)


class SelfCheck(msgspec.Struct, frozen=True, kw_only=True):
    """One run. at: seconds since 1970. answers: SHA-256 of the built-in model's answer, by the prompt's name.

    prompt_per_s, tokens_per_s: tokens read and written a second. devices: their memory in bytes, by name.
    compared_with: the version whose run this one was compared with. findings: what became worse, for people.
    """

    version: str
    llama_cpp: str
    at: float
    answers: dict[str, str]
    prompt_per_s: float
    tokens_per_s: float
    devices: dict[str, int]
    free_bytes: int
    compared_with: str | None = None
    findings: tuple[str, ...] = ()
    format: int = 1


class SelfChecks:
    """Of one data folder. Every method blocks briefly on the disk."""

    def __init__(self, data_dir: Path) -> None:
        self._folder = data_dir / "selfcheck"

    def all(self) -> tuple[SelfCheck, ...]:
        """The last one of each version, the newest last. Files that are damaged or of a later format are left out."""
        try:
            paths = sorted(path for path in self._folder.iterdir() if path.suffix == ".json")
        except OSError:
            return ()
        read = [check for path in paths if (check := _read(path)) is not None]
        return tuple(sorted(read, key=lambda check: check.at))

    def before(self, version: str) -> SelfCheck | None:
        """What a run of this version is compared with: the newest of another version, else its own last one."""
        known = self.all()
        return next(
            (check for check in reversed(known) if check.version != version), known[-1] if known else None
        )

    def put(self, check: SelfCheck) -> None:
        """Write it in place of its version's last one. Raises OSError."""
        name = re.sub(r"[^0-9A-Za-z.+-]", "_", check.version)
        content = msgspec.json.format(
            msgspec.json.encode(msgspec.structs.replace(check, format=latest(SELF_CHECK_STEPS))), indent=1
        )
        write_atomically(self._folder / f"{name}.json", content, mode=0o600)


def _read(path: Path) -> SelfCheck | None:
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
        values = msgspec.json.decode(content, type=dict[str, Any])
        upgrade(values, "format", SELF_CHECK_STEPS)
        return msgspec.convert(values, SelfCheck)
    except LaterVersion:
        return None
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        _log.warning("a self-check cannot be read", extra={"file": path.name, "reason": str(error)})
        return None


def worse(before: SelfCheck, now: SelfCheck) -> tuple[str, ...]:
    """What is worse now, or different where nothing should be: one sentence each."""
    since = f"than with version {before.version}"
    found: list[str] = []
    changed = sorted(
        name for name, digest in now.answers.items() if before.answers.get(name, digest) != digest
    )
    if changed:
        found.append(
            f"The built-in model answers differently {since}: {', '.join(changed)}"
            f" (llama-cpp-python {before.llama_cpp} and {now.llama_cpp})."
        )
    for what, old, new in (
        ("reads prompts", before.prompt_per_s, now.prompt_per_s),
        ("writes", before.tokens_per_s, now.tokens_per_s),
    ):
        if new < _SLOWER * old:
            found.append(f"The built-in model {what} slower {since}: {new:.0f} tokens/s, not {old:.0f}.")
    found += [f"The device {name} is gone." for name in sorted(before.devices.keys() - now.devices.keys())]
    found += [
        f"The device {name} has less memory {since}: {now.devices[name] / 1e9:.1f} GB, not {size / 1e9:.1f} GB."
        for name, size in sorted(before.devices.items())
        if 0 <= now.devices.get(name, -1) < _LESS_MEMORY * size
    ]
    if now.free_bytes < _LESS_MEMORY * before.free_bytes:
        found.append(
            f"Less memory is free {since}: {now.free_bytes / 1e9:.1f} GB, not {before.free_bytes / 1e9:.1f} GB."
        )
    return tuple(found)
