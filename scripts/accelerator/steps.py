"""The steps of the check: build, devices, tests, rows. Each returns what the report says of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kernels.llama import ROOT, Build
from scripts.accelerator.backends import Backend, tool_path
from scripts.accelerator.prepare import WHEELS, unpacked
from scripts.installer.commands import run, say
from scripts.installer.environment import Environment

TESTS: Final = tuple(
    f"tests/integration/engine/{name}.py"
    for name in (
        "test_batching",
        "test_sampling",
        "test_switches",
        "drafting/test_drafts",
        "drafting/test_mtp",
    )
)
ROWS: Final = ("one-stream", "own-prompts-8", "shared-prefix-8", "long-prefill", "streams-32")
N_CTX: Final = 20_480
"""The context that each of these rows fits into."""
_EXAMPLES: Final = 12
"""Failed tests that the report names."""

Facts = dict[str, Any]
"""What the report says of a step, or of all: for JSON."""


@dataclass(frozen=True, slots=True)
class Check:
    """What to check, and where. prepared: a folder of `prepare`; None: packages come from the index."""

    backend: Backend
    work: Path
    prepared: Path | None = None
    model: Path | None = None
    tests: tuple[str, ...] = TESTS
    rows: tuple[str, ...] = ROWS
    rounds: int = 1

    @property
    def environment(self) -> Path:
        return self.work / "venv"

    @property
    def python(self) -> Path:
        return self.environment / "bin" / "python"

    def log(self, name: str) -> Path:
        return self.work / "logs" / f"{name}.log"


def build(check: Check) -> Facts:
    """Make the environment, with llama.cpp compiled for the backend; minutes. Raises InstallError."""
    began = time.monotonic()
    cmake_args = " ".join(filter(None, (check.backend.cmake_args, os.environ.get("CMAKE_ARGS"))))
    with_tools(check.backend)
    if check.prepared is None:
        os.environ["CMAKE_ARGS"] = cmake_args
        environment = Environment(ROOT)
        environment.folder, environment.python = check.environment, check.python
        environment.make(developing=True)
    else:
        _build_offline(check, check.prepared, cmake_args)
    return {"seconds": round(time.monotonic() - began, 1), "cmake_args": cmake_args}


def _build_offline(check: Check, prepared: Path, cmake_args: str) -> None:
    if not check.python.exists():
        run("making the environment", [sys.executable, "-m", "venv", check.environment], check.log("venv"))
    pip = [check.python, "-m", "pip", "--disable-pip-version-check"]
    offline = ["--no-index", "--no-deps", "--find-links", prepared / WHEELS]
    wheels = sorted((prepared / WHEELS).glob("*.whl"))
    say("installing packages")
    run("installing packages", [*pip, "install", "--quiet", *offline, *wheels], check.log("packages"))
    sources = unpacked(prepared, check.work / "sources")
    definitions = Build("system", cmake_args).definitions()
    variables = {
        "CMAKE_ARGS": cmake_args,
        "SKBUILD_CMAKE_DEFINE": ";".join(f"{name}={value}" for name, value in definitions.items()),
        "PATH": f"{check.environment / 'bin'}:{os.environ['PATH']}",
    }
    say(f"compiling llama.cpp with {cmake_args or 'the CPU only'}: this takes minutes")
    command = [*pip, "install", "--verbose", *offline, "--no-build-isolation", "--force-reinstall", sources]
    run("compiling llama.cpp", command, check.log("llama"), variables=variables)
    editable = ["install", "--quiet", *offline, "--no-build-isolation", "--editable", ROOT]
    run("installing jan-serve", [*pip, *editable], check.log("jan-serve"))


def devices(check: Check) -> Facts:
    """What `doctor` sees, with an error if the backend's device is missing. Raises InstallError if `doctor` fails."""
    output = run("doctor", [check.python, "-m", "jan_serve", "doctor", "--json"], check.log("doctor"))
    found: Facts = json.loads(output[output.index("{") :])
    if check.backend.name != "cpu" and not found["engine"]["accelerators"]:
        return {"doctor": found, "error": f"llama.cpp finds no device for {check.backend.name}"}
    return {"doctor": found}


def tests(check: Check) -> Facts:
    """Run the engine's tests with all layers on the device. A failed test is a finding, no error."""
    xml = check.work / "tests.xml"
    xml.unlink(missing_ok=True)
    say("running tests")
    variables = {} if check.backend.name == "cpu" else {"JAN_SERVE_TEST_LAYERS": "all"}
    command = [check.python, "-m", "pytest", "-q", f"--junitxml={xml}", *check.tests]
    status = _status(command, check.log("tests"), variables)
    if not xml.is_file():
        return {"status": status, "error": f"pytest ended with {status}: {check.log('tests')}"}
    suites = ElementTree.parse(xml).getroot().iter("testsuite")
    counted = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
    failed: list[str] = []
    for suite in suites:
        for name in counted:
            counted[name] += int(suite.get(name, 0))
        for case in suite.iter("testcase"):
            problem = case.find("failure")
            problem = case.find("error") if problem is None else problem
            if problem is not None:
                reason = (problem.get("message") or "").partition("\n")[0]
                failed.append(f"{case.get('name')}: {reason}")
    return {"status": status, **counted, "failed": failed[:_EXAMPLES]}


def rows(check: Check) -> Facts:
    """Run rows of the benchmark on the device, and beside it on the CPU alone. A failed row is a finding."""
    model = check.model or _bench_model(check)
    out = check.work / "rows.json"
    out.unlink(missing_ok=True)
    say("running rows of the benchmark")
    flags = f"{check.backend.flags} --n-ctx {N_CTX}"
    command: list[str | Path] = [check.python, "-m", "benchmarks", "--model", model, "--out", out]
    command += ["--plot", check.work / "rows.svg", "--rounds", str(check.rounds), "--flags", flags]
    if check.backend.name != "cpu":
        serve = f"{check.python} -m jan_serve serve --model {{model}} --port {{port}}"
        peer = f"{serve} --device cpu --n-ctx {N_CTX}"
        command += ["--peer-cmd", peer]
    for row in check.rows:
        command += ["--row", row]
    status = _status(command, check.log("rows"), {})
    if not out.is_file():
        return {"status": status, "error": f"the benchmark ended with {status}: {check.log('rows')}"}
    document = json.loads(out.read_text(encoding="utf-8"))
    medians: dict[str, Facts] = document["medians"]
    device = medians.pop("jan-serve")
    # The peer is named after its program.
    cpu = next(iter(medians.values())) if medians else {}
    missing = [row for row in check.rows if row not in device]
    return {
        "status": status or int(bool(missing)),
        "missing": missing,
        "model": model.name,
        "machine": document["machine"],
        "device": device,
        "cpu": cpu,
    }


def with_tools(backend: Backend) -> None:
    """Let CMake find the backend's compiler if it is outside PATH."""
    found = tool_path(backend.tool) if backend.tool else None
    if found is not None:
        folder = os.path.dirname(found)
        if folder not in os.environ["PATH"].split(":"):
            os.environ["PATH"] = f"{folder}:{os.environ['PATH']}"


def _bench_model(check: Check) -> Path:
    path = check.work / "bench.gguf"
    if not path.is_file():
        say("writing a model to measure with")
        run("writing the model", [check.python, "-m", "benchmarks.bench_model", path], check.log("model"))
    return path


def _status(command: list[str | Path], log: Path, variables: dict[str, str]) -> int:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w", encoding="utf-8") as file:
        return subprocess.run(
            list(map(str, command)),
            stdout=file,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **variables},
            cwd=ROOT,
            check=False,
        ).returncode
