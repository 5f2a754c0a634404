"""The virtual environment in .venv or .venv-cluster: what it needs, and what it has by its stamps."""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Final

from kernels import llama
from scripts.installer import packages
from scripts.installer.cache import cache_folder
from scripts.installer.commands import run, say
from scripts.installer.errors import InstallError, of_os_error

_SERVING: Final = "constraints.txt"
_DEVELOPING: Final = "constraints-dev.txt"
_CLUSTER: Final = "constraints-cluster.txt"
_LLAMA: Final = "llama-cpp-python"


class Environment:
    """An environment of a checkout. Steps that its stamps show as done are left out.

    cluster: the one with Ray, which is apart because of its size.
    """

    def __init__(self, checkout: Path, *, cluster: bool = False) -> None:
        self.checkout = checkout
        self.folder = checkout / (".venv-cluster" if cluster else ".venv")
        self._cluster = cluster
        self.python = self.folder / "bin" / "python"

    def make(self, *, developing: bool) -> None:
        """Create or complete it; blocks for minutes if llama.cpp must be compiled. Raises InstallError.

        developing: with what tests, checks and measurements need.
        """
        try:
            self._create()
            self._install_llama()
            self._install_packages(_SERVING, ".installed-serve", "the packages for serving", editable=True)
            if developing:
                self._install_packages(_DEVELOPING, ".installed-dev", "the packages for tests and tools")
            if self._cluster:
                self._install_packages(_CLUSTER, ".installed-cluster", "Ray")
        except OSError as error:
            raise of_os_error("the installation", error) from error

    def _create(self) -> None:
        """A new one if there is none, or if a cut installation or a removed Python left it unusable."""
        if Path(sys.prefix).resolve() == self.folder.resolve() or self._works():
            return
        version = ".".join(map(str, sys.version_info[:3]))
        say(f"making a virtual environment in {self.folder.name} with Python {version}")
        command = [sys.executable, "-m", "venv", "--clear", self.folder]
        run("making the virtual environment", command, self._kept / "logs" / "venv.log")

    def _works(self) -> bool:
        if not self.python.exists():
            return False
        check = "import pip, sys; sys.exit(sys.version_info < (3, 11))"
        return subprocess.run([self.python, "-c", check], capture_output=True, check=False).returncode == 0

    @cached_property
    def _kept(self) -> Path:
        return cache_folder(self.checkout)

    @cached_property
    def _installer(self) -> packages.Installer:
        return packages.Installer(self.python, self._kept, self.checkout / "scripts" / "uv.txt")

    def _install_llama(self) -> None:
        """llama.cpp comes first, so that no installer compiles it by itself. What was asked for once stays."""
        stamp = self.folder / ".cmake-args"
        before = [*_lines(stamp), "", "", ""]
        cmake_args = os.environ.get("CMAKE_ARGS") or before[0]
        compiler = os.environ.get("LLAMA_COMPILER") or before[2]
        builds = llama.chosen_builds(cmake_args, compiler)
        requirement = llama.requirement_of(self.checkout / _SERVING)
        wanted = [cmake_args, requirement.splitlines()[0], compiler, builds[0].key(requirement)]
        if before[: len(wanted)] != wanted:
            wheel = llama.wheel_of(builds, self.python, self._kept)
            self._installer.install(
                "installing llama.cpp", "--quiet", "--no-deps", "--force-reinstall", wheel
            )
            stamp.write_text("\n".join(wanted) + "\n", encoding="utf-8")

    def _install_packages(self, name: str, stamp_name: str, what: str, *, editable: bool = False) -> None:
        """The pins of this file, checked by hash. editable: then the package itself."""
        constraints = self.checkout / name
        stamp = self.folder / stamp_name
        wanted = _digest([constraints, self.checkout / "pyproject.toml"])
        if _lines(stamp) == [wanted]:
            return
        say(f"installing {what}")
        with tempfile.TemporaryDirectory(prefix="jan-serve-pins-") as folder:
            pins = Path(folder, "pins.txt")
            pins.write_text(packages.without(_LLAMA, constraints), encoding="utf-8")
            options = ["--quiet", "--require-hashes", "--no-deps", "--requirement"]
            self._installer.install(f"installing {what}", *options, pins)
        if editable:
            options = ["--quiet", "--no-deps", "--no-build-isolation", "--editable"]
            self._compile()
            self._installer.install("installing jan-serve", *options, self.checkout)
        stamp.write_text(wanted + "\n", encoding="utf-8")

    def _compile(self) -> None:
        """The modules of the checkout, which no installer compiles. What stays uncompiled, the first start compiles."""
        command = [self.python, "-m", "compileall", "-q", "-j", "0", self.checkout / "app"]
        with contextlib.suppress(InstallError):
            run("compiling the modules", command, self._kept / "logs" / "compile.log")


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.is_file() else []


def _digest(files: Sequence[Path]) -> str:
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()
