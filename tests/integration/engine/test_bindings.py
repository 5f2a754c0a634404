"""The bindings without the package around them."""

from __future__ import annotations

import subprocess
import sys

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
