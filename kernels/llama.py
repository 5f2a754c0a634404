"""Compiles the pinned llama-cpp-python. Wheels are kept, one for each way to compile and each kind of processor."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scripts.installer.cache import locked, work_folder
from scripts.installer.commands import run, say
from scripts.installer.errors import Cause, InstallError, of_os_error
from scripts.installer.progress import Progress

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parent
# What of the wheel is not for Python: headers, and CMake's and pkg-config's descriptions.
_LEFT_OUT: Final = ("llama_cpp/include/**", "llama_cpp/lib/cmake/**", "llama_cpp/lib/pkgconfig/**")
# The oldest C library that a portable build runs with: that of the other compiled packages.
_GLIBC: Final = "2.28"
# CMake links the program by which it identifies a compiler, but is content with its object file.
_COMPILE_ONLY: Final = 'case "$*" in *CompilerId.c*) set -- -c "$@" ;; esac\n'


@dataclass(frozen=True, slots=True)
class Build:
    """How llama.cpp is compiled. compiler: "zig" or "system"; cmake_args: as on CMake's command line.

    portable: for any processor of this architecture, with kernels that are chosen at run time.
    """

    compiler: str
    cmake_args: str = ""
    portable: bool = False

    def definitions(self) -> dict[str, str]:
        """CMake's variables, without those of cmake_args."""
        values = {"CMAKE_PROJECT_llama_cpp_INCLUDE": str(HERE / "llama.cmake")}
        values |= {"LLAMA_ALL_WARNINGS": "OFF", "GGML_RPC": "ON"}
        if self.portable:
            values |= {"GGML_NATIVE": "OFF", "GGML_BACKEND_DL": "ON", "GGML_CPU_ALL_VARIANTS": "ON"}
            # Else the RPC backend needs libibverbs wherever it runs, if this machine has it.
            values["GGML_RPC_RDMA"] = "OFF"
        if self.compiler == "zig":
            # Zig has no OpenMP; ggml's own threads do as well. It keeps debugging information unless told otherwise,
            # and compiles its C++ library for each kind of link again: of CMake's tests none links (see _zig too).
            values |= {
                "GGML_OPENMP": "OFF",
                "CMAKE_TRY_COMPILE_TARGET_TYPE": "STATIC_LIBRARY",
                "CMAKE_C_FLAGS": "-g0",
                "CMAKE_CXX_FLAGS": "-g0",
                "CMAKE_SHARED_LINKER_FLAGS": "-s",
                "CMAKE_MODULE_LINKER_FLAGS": "-s",
            }
        return values

    def target(self) -> list[str]:
        """Options of Zig's compiler for the machine that the libraries are for; none: this one."""
        if not self.portable:
            return []
        return ["-target", f"{platform.machine()}-linux-gnu.{_GLIBC}", "-mcpu=baseline"]

    def key(self, requirement: str) -> str:
        """Name of the folder of its wheel. Code that was compiled for this processor must not run on another one."""
        parts = [requirement, repr(self), repr(self.target()), platform.system(), platform.machine()]
        parts += [f"{name}={value}" for name, value in self.definitions().items() if "INCLUDE" not in name]
        sources = [path for pattern in ("*.cmake", "*.h", "zig.txt") for path in sorted(HERE.glob(pattern))]
        parts += [source.read_text(encoding="utf-8") for source in sources]
        parts.append(repr(_LEFT_OUT))
        if self.compiler == "system":
            parts += [os.environ.get("CC", ""), os.environ.get("CXX", "")]
        if not self.portable:
            parts.append(_processor())
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def chosen_builds(cmake_args: str, wanted: str, *, portable: bool = False) -> list[Build]:
    """The builds to try, in order. wanted: "zig", "system" or "" for the default; raises InstallError for others.

    Newer clangs make llama.cpp's own kernels for K-quants, which processors with AVX-512 use, a quarter faster than gcc
    12 does (docs/performance.md), so Zig's is the default on Linux on x86-64, where nothing else was asked for.
    """
    if wanted not in ("zig", "system", ""):
        raise InstallError(f"LLAMA_COMPILER is zig or system, not {wanted}")
    asked = cmake_args or os.environ.get("CC") or os.environ.get("CXX")
    default = (
        "zig" if (platform.system(), platform.machine()) == ("Linux", "x86_64") and not asked else "system"
    )
    builds = [Build(wanted or default, cmake_args, portable)]
    if builds[0].compiler == "zig" and not portable:
        builds.append(Build("system", cmake_args, portable))
    return builds


def requirement_of(constraints: Path) -> str:
    """The pin of llama-cpp-python with its hashes, as in a requirements file."""
    found = re.search(
        r"^llama-cpp-python==.*\n(?:[ ].*\n)*", constraints.read_text(encoding="utf-8"), re.MULTILINE
    )
    if found is None:
        raise InstallError(f"{constraints} has no llama-cpp-python")
    return found[0]


def wheel_of(builds: list[Build], python: Path, kept: Path) -> Path:
    """The wheel of the first build that succeeds, compiled unless it is kept already; blocks for minutes.

    python: an interpreter with pip; kept: the folder of kept wheels and logs. Raises InstallError if none succeeds.
    """
    requirement = requirement_of(ROOT / "constraints.txt")
    failures: list[InstallError] = []
    for build in builds:
        folder = kept / build.key(requirement)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with locked(folder, "another installation compiles llama.cpp: waiting for it"):
                wheel = next((path for path in folder.glob("*.whl") if zipfile.is_zipfile(path)), None)
                return wheel or _compiled(build, requirement, python, folder, kept / "logs")
        except InstallError as error:
            failures.append(error)
            if error.cause is not Cause.OTHER:
                break
            if build is not builds[-1]:
                say(f"{error}; trying the system's compiler (LLAMA_COMPILER=system does so at once)")
        except OSError as error:
            raise of_os_error("compiling llama.cpp", error) from error
    # What the last one says of a missing compiler hides why the preferred one failed.
    raise failures[0]


def _kept(wheel: Path, folder: Path) -> Path:
    """Move a wheel into its folder, whole or not at all."""
    partial = folder / f".{wheel.name}.partial"
    try:
        shutil.copyfile(wheel, partial)
        os.replace(partial, folder / wheel.name)
    finally:
        partial.unlink(missing_ok=True)
    return folder / wheel.name


def _compiled(build: Build, requirement: str, python: Path, folder: Path, logs: Path) -> Path:
    """A new wheel in `folder`, whose library this machine can load."""
    with_args = f" with {build.cmake_args}" if build.cmake_args else ""
    whose = "Zig's" if build.compiler == "zig" else "the system's"
    say(f"compiling llama.cpp by {whose} compiler{with_args}, once: this takes minutes")
    with work_folder(f"compile-{folder.name}") as work, Progress("compiling llama.cpp") as progress:
        variables = {"CMAKE_ARGS": build.cmake_args, "SKBUILD_WHEEL_EXCLUDE": ";".join(_LEFT_OUT)}
        definitions = build.definitions()
        if build.compiler == "zig":
            more_variables, more_definitions = _zig(build, work, python, logs)
            variables |= more_variables
            definitions |= more_definitions
        variables["SKBUILD_CMAKE_DEFINE"] = ";".join(f"{name}={value}" for name, value in definitions.items())
        (work / "llama.txt").write_text(requirement, encoding="utf-8")
        wheels, temporary = work / "wheels", work / "tmp"
        wheels.mkdir()
        temporary.mkdir()
        options = [
            "--verbose",
            "--require-hashes",
            "--no-deps",
            "--no-cache-dir",
            "--no-binary",
            "llama-cpp-python",
        ]
        command = [python, "-m", "pip", "--disable-pip-version-check", "wheel", *options]
        run(
            "compiling llama.cpp",
            [*command, "--wheel-dir", wheels, "--requirement", work / "llama.txt"],
            logs / f"llama-{build.compiler}.log",
            variables=variables | {"TMPDIR": str(temporary)},
            on_line=progress.read,
        )
        (wheel,) = wheels.glob("*.whl")
        _check_loads(wheel, work / "unpacked", python, logs / "load.log")
        return _kept(wheel, folder)


def _zig(build: Build, work: Path, python: Path, logs: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Install Zig in `work`. Its variables, and CMake's definitions.

    zig is one program with the tools as commands; CMake wants a program each.
    """
    pip = [
        python,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "install",
        "--quiet",
        "--require-hashes",
        "--no-deps",
    ]
    packages = work / "packages"
    run(
        "fetching the compiler",
        [*pip, "--target", packages, "--requirement", HERE / "zig.txt"],
        logs / "zig.log",
    )
    (work / "bin").mkdir()
    for tool in ("cc", "c++", "ar", "ranlib"):
        options = build.target() if tool in ("cc", "c++") else []
        command = shlex.join([str(packages / "ziglang" / "zig"), tool, *options])
        program = work / "bin" / tool
        program.write_text(f'#!/bin/sh\n{_COMPILE_ONLY}exec {command} "$@"\n', encoding="utf-8")
        program.chmod(0o755)
    programs, caches = work / "bin", str(work / "zig")
    return (
        {
            "CC": str(programs / "cc"),
            "CXX": str(programs / "c++"),
            "ZIG_GLOBAL_CACHE_DIR": caches,
            "ZIG_LOCAL_CACHE_DIR": caches,
        },
        {
            "CMAKE_AR": str(programs / "ar"),
            "CMAKE_RANLIB": str(programs / "ranlib"),
            "JAN_SERVE_ZIG": str(packages / "ziglang"),
        },
    )


def _check_loads(wheel: Path, unpacked: Path, python: Path, log: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(unpacked)
    libraries: list[Path] = []
    for name in ("libllama", "libmtmd"):
        found = [*(unpacked / "llama_cpp" / "lib").glob(f"{name}.*")]
        if not found:
            raise InstallError(f"compiling llama.cpp failed: {wheel.name} has no {name}")
        libraries += found
    load = "import ctypes, sys; [ctypes.CDLL(path) for path in sys.argv[1:]]"
    run("loading the compiled llama.cpp", [python, "-c", load, *libraries], log)


def _processor() -> str:
    """What distinguishes this processor's instructions from another one's."""
    if sys.platform == "darwin":
        command = ["sysctl", "-n", "machdep.cpu.brand_string"]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        return next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return platform.processor()
