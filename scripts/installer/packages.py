"""Installs pinned packages into an environment: by uv, which takes seconds, or by pip where uv cannot."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from scripts.installer.cache import locked
from scripts.installer.commands import run, say
from scripts.installer.errors import Cause, InstallError

# Settings of pip that uv has under another name.
_UV_NAMES: Final = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "cert": "SSL_CERT_FILE",
    "proxy": "ALL_PROXY",
}


class Installer:
    """Installs into the environment of `python`. uv's program and its downloads are kept in the folder `kept`."""

    def __init__(self, python: Path, kept: Path, pin: Path) -> None:
        self._python = python
        self._kept = kept
        self._pin = pin
        self._uv: Path | None = None
        self._tried = False

    def install(self, what: str, *options: str | Path) -> None:
        """`pip install` with these options, by uv if possible. Raises InstallError."""
        logs = self._kept / "logs"
        uv = self._find_uv()
        if uv is not None:
            command = [uv, "pip", "install", "--python", self._python, *options]
            log, variables = logs / "install-by-uv.log", self._for_uv()
            try:
                run(what, command, log, variables=variables)
                return
            except InstallError as error:
                if error.cause is Cause.FULL_DISK:
                    raise
                failure = error
            if failure.cause is Cause.NO_NETWORK:
                # What an earlier installation fetched is enough for the same pins.
                with contextlib.suppress(InstallError):
                    run(
                        what, command, logs / "install-offline.log", variables=variables | {"UV_OFFLINE": "1"}
                    )
                    return
            say(f"{failure}; trying pip")
        run(what, [*self._pip(), "install", "--no-input", *options], logs / "install-by-pip.log")

    def _pip(self) -> list[str | Path]:
        return [self._python, "-m", "pip", "--disable-pip-version-check"]

    def _find_uv(self) -> Path | None:
        """The pinned uv, installed on the first call; None if it cannot be, which is said once."""
        if not self._tried:
            self._tried = True
            folder = self._kept / f"uv-{hashlib.sha256(self._pin.read_bytes()).hexdigest()[:16]}"
            try:
                with locked(self._kept, "another installation fetches uv: waiting for it"):
                    if not (folder / "bin" / "uv").is_file():
                        self._install_uv(folder)
                self._uv = folder / "bin" / "uv"
            except (InstallError, OSError) as error:
                say(f"without uv, which would be faster: {error}")
        return self._uv

    def _install_uv(self, folder: Path) -> None:
        with tempfile.TemporaryDirectory(prefix=".uv-", dir=self._kept) as name:
            options = ["--quiet", "--require-hashes", "--no-deps", "--only-binary", ":all:"]
            command = [*self._pip(), "install", *options, "--target", name, "--requirement", self._pin]
            run("fetching uv", command, self._kept / "logs" / "uv.log")
            shutil.rmtree(folder, ignore_errors=True)
            os.replace(name, folder)
            Path(name).mkdir()

    def _for_uv(self) -> dict[str, str]:
        """uv's variables: pip's settings, where uv has none of its own.

        As pip does, it takes a version from any index: each download must have its pinned hash.
        """
        listing = subprocess.run(
            [*self._pip(), "config", "list"], capture_output=True, text=True, check=False
        )
        settings = translated(listing.stdout, os.environ)
        own = {"UV_CACHE_DIR": str(self._kept / "uv"), "UV_INDEX_STRATEGY": "unsafe-best-match"}
        # pip compiles the modules too, so that the first start does not.
        own["UV_COMPILE_BYTECODE"] = "1"
        return own | {"UV_PYTHON_DOWNLOADS": "never"} | settings


def translated(listing: str, variables: Mapping[str, str]) -> dict[str, str]:
    """uv's variables for what `pip config list` prints, except those that are set already.

    Later lines of the listing count more: pip prints files before the environment.
    """
    values: dict[str, str] = {}
    for name, value in re.findall(r"^(?:global|install|:env:)\.([a-z-]+)='(.*)'$", listing, re.MULTILINE):
        wanted = _UV_NAMES.get(name)
        if wanted is not None and wanted not in variables and value:
            values[wanted] = " ".join(value.replace("\\n", " ").split())
    return values


def without(package: str, constraints: Path) -> str:
    """The pins of this file, except that of one package."""
    text = constraints.read_text(encoding="utf-8")
    return re.sub(rf"^{re.escape(package)}==.*\n(?:[ ].*\n)*", "", text, flags=re.MULTILINE)
