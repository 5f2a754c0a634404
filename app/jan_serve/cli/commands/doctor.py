"""`jan-serve doctor`: checks whether this installation can serve, and shows its hardware. Changes nothing."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final, cast

import msgspec
import psutil
import typer

from jan_serve import __version__
from jan_serve.cli.arguments import ConfigOption, JsonOption
from jan_serve.cli.errors import FAILED
from jan_serve.cli.options import load_settings
from jan_serve.cli.output import output, size_text
from jan_serve.cli.server.hardware import ProbeFailed, free_main_memory, probe_engine
from jan_serve.config import LoadedSettings, Settings
from jan_serve.errors import JanServeError
from jan_serve.store.measurements import SelfChecks
from jan_serve.wiring.parts import build_resolver

_PACKAGES: Final = ("llguidance", "fastapi", "uvicorn", "pydantic", "numpy", "msgspec")
_IF_READ_ONLY: Final = {
    "data": "there is no log file, and prompts are not kept across restarts",
    "models": "models cannot be pulled, imported or removed",
}


_LABELS: Final = {
    "llama_cpp": "llama.cpp",
    "supports_gpu_offload": "offload to accelerators",
    "supports_mmap": "mmap",
    "supports_mlock": "mlock",
    "max_parallel_sequences": "parallel sequences at most",
}


class Findings(msgspec.Struct):
    """problems: faults that prevent serving."""

    facts: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    engine: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    problems: list[str] = msgspec.field(default_factory=list[str])
    warnings: list[str] = msgspec.field(default_factory=list[str])


def doctor(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Check llama.cpp, devices, memory and folders. The exit status is 1 if the server cannot work."""
    loaded = load_settings(config_file=config)
    findings = examine(loaded)
    if as_json:
        output.json(msgspec.to_builtins(findings))
    else:
        output.table(("", "jan-serve doctor"), findings.facts.items())
        _print_engine(findings.engine)
        for warning in findings.warnings:
            output.warning(warning)
        for problem in findings.problems:
            output.error(problem)
        if not findings.problems:
            output.note("No problems found.")
    if findings.problems:
        raise typer.Exit(FAILED)


def examine(loaded: LoadedSettings) -> Findings:
    """Blocks for about a second, mostly for the probe of llama.cpp."""
    findings = Findings(warnings=list(loaded.warnings))
    free, total = free_main_memory(), psutil.virtual_memory().total
    findings.facts = {
        "version": __version__,
        "python": f"{platform.python_version()} ({sys.executable})",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": f"{psutil.cpu_count(logical=False)} cores, {psutil.cpu_count()} threads",
        "memory": f"{size_text(free)} free of {size_text(total)}",
        "packages": ", ".join(f"{name} {_version_of(name)}" for name in _PACKAGES),
    }
    _examine_folders(loaded, findings)
    _examine_models(loaded.settings, findings)
    _examine_self_check(loaded.settings, findings)
    try:
        findings.engine = probe_engine(peers=loaded.settings.rpc)
        missing: dict[str, str] = findings.engine.get("missing_peers", {})
        findings.warnings += [f"rpc: {address}: {reason}" for address, reason in missing.items()]
    except ProbeFailed as error:
        findings.problems.append(str(error))
    return findings


def _examine_folders(loaded: LoadedSettings, findings: Findings) -> None:
    state = "" if loaded.config_file_read else " (not there)"
    findings.facts["configuration"] = f"{loaded.config_file}{state}"
    for name, folder in (("data", loaded.settings.data_dir), ("models", loaded.settings.models_dir)):
        existing = next(path for path in (folder, *folder.parents) if path.exists())
        free = size_text(shutil.disk_usage(existing).free)
        state = "" if folder.exists() else " (not there yet)"
        findings.facts[f"{name} folder"] = f"{folder}{state}, {free} free"
        if existing == folder and not folder.is_dir():
            findings.problems.append(f"the {name} folder {folder} is not a folder")
        elif existing == folder and not os.access(folder, os.R_OK | os.X_OK):
            findings.problems.append(f"this user cannot read the {name} folder {folder}")
        elif not can_write(existing):
            findings.warnings.append(
                f"this user cannot write to the {name} folder {folder}: {_IF_READ_ONLY[name]}"
            )


def can_write(folder: Path) -> bool:
    """Whether the permissions allow new files in it."""
    return os.access(folder, os.W_OK | os.X_OK)


def _examine_models(settings: Settings, findings: Findings) -> None:
    try:
        resolver = build_resolver(settings)
        default = resolver.default()
    except JanServeError as error:
        findings.problems.append(error.message)
        return
    findings.facts["models"] = str(len(resolver.entries()))
    if default.entry is None:
        findings.warnings.append(
            f"no model to serve: {default.reason}, and this installation has no built-in model"
        )
        return
    findings.facts["default model"] = f"{default.entry.name} ({default.reason})"
    try:
        resolver.model_file(default.entry.path, default.entry.name)
    except JanServeError as error:
        findings.problems.append(error.message)


def _examine_self_check(settings: Settings, findings: Findings) -> None:
    """The last run of `jan-serve selfcheck`."""
    known = SelfChecks(settings.data_dir).all()
    if not known:
        return
    last = known[-1]
    at = time.strftime("%Y-%m-%d", time.localtime(last.at))
    stale = "" if last.version == __version__ else f"; `jan-serve selfcheck` compares it with {__version__}"
    findings.facts["selfcheck"] = f"{at} with version {last.version}, {len(last.findings)} findings{stale}"
    findings.warnings += [f"selfcheck of {at}: {finding}" for finding in last.findings]


def _print_engine(engine: dict[str, Any]) -> None:
    if not engine:
        return
    output.table(
        ("", "llama.cpp"),
        [
            (_LABELS.get(name, name.replace("_", " ")), text)
            for name, value in engine.items()
            if name != "devices" and (text := _engine_text(name, value, engine))
        ],
    )
    output.table(
        ("device", "kind", "free memory", "description"),
        [
            (
                str(device.get("name", "")),
                str(device.get("kind", "")),
                _device_memory(device),
                str(device.get("description", "")),
            )
            for device in engine.get("devices", [])
        ],
    )


def _engine_text(name: str, value: Any, engine: dict[str, Any]) -> str:
    if name == "llama_cpp":
        return str(value).replace(" (", " (llama-cpp-python ")
    if name == "accelerators":
        named = ", ".join(str(device["name"]) for device in value)
        return named or ("none found" if engine.get("supports_gpu_offload") else "none (CPU build)")
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{key}: {reason}" for key, reason in cast(dict[str, Any], value).items())
    return str(value)


def _device_memory(device: dict[str, Any]) -> str:
    free, total = device.get("free_bytes", 0), device.get("total_bytes", 0)
    # CPU backends of ggml, such as BLAS and AMX, are devices without their own memory.
    return f"{size_text(free)} of {size_text(total)}" if total else "main memory"


def _version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "(not installed)"
