"""Only engine/llama may touch the bindings, and the pure modules of the engine must load without them."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import jan_serve

PACKAGE = Path(jan_serve.__file__).parent
# Imported by the scheduler's and the cache's tests, which run without native code.
PURE = (
    "cache.prefix_cache",
    "stats",
    "scheduling.step_planner",
    "scheduling.scheduler",
    "sequence",
    "tokens",
)


def imported(path: Path) -> set[str]:
    """Top-level packages that a file imports anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.partition(".")[0])
    return found


def test_engine_llama_is_the_only_importer_of_the_bindings() -> None:
    importers = {path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py") if "llama_cpp" in imported(path)}
    assert importers, "the check found no importer at all"
    assert {path.parent for path in importers} == {Path("engine/llama")}


def test_pure_engine_modules_load_no_native_engine() -> None:
    imports = "; ".join(f"import jan_serve.engine.{name}" for name in PURE)
    code = f"{imports}; import sys; print(sorted({{'llama_cpp', 'llguidance'}} & set(sys.modules)))"
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=PACKAGE.parent,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert run.stdout.strip() == "[]"


_PROGRAM = """
import sys
from jan_serve.engine import worker
from jan_serve.engine.llama import bindings
print(sorted({"jinja2", "diskcache", "llama_cpp", "llama_cpp.llama"} & sys.modules.keys()))
print(bindings.bindings_version())
import llama_cpp
print(llama_cpp.llama_cpp is bindings.lib, llama_cpp.Llama.__module__)
"""
_AFTER_THE_PACKAGE = """
import llama_cpp
from jan_serve.engine.llama import bindings
import llama_cpp as again
print(again is llama_cpp, bindings.lib is llama_cpp.llama_cpp)
"""


def _printed(program: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_the_chat_api_of_the_package_is_not_imported_until_somebody_does() -> None:
    loaded, version, whole = _printed(_PROGRAM)
    assert loaded == "[]"
    assert version[0].isdigit()
    assert whole == "True llama_cpp.llama"


def test_an_imported_package_stays() -> None:
    assert _printed(_AFTER_THE_PACKAGE) == ["True True"]
