"""The low-level bindings, untyped: their annotations name arrays for pointers. The wrappers add types."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Generator
from types import ModuleType
from typing import Any

_PACKAGE = "llama_cpp"


@contextlib.contextmanager
def _bare_package() -> Generator[None]:
    """Let modules of the package be imported without its `__init__`. That imports a chat API for Python programs and
    its dependencies, which takes three times as long. Whoever imports the package later gets all of it."""
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or spec.submodule_search_locations is None:
        raise ModuleNotFoundError(f"No module named {_PACKAGE!r}", name=_PACKAGE)
    if _PACKAGE in sys.modules:
        bare = sys.modules[_PACKAGE]
    else:
        bare = sys.modules[_PACKAGE] = ModuleType(_PACKAGE)
        bare.__path__ = spec.submodule_search_locations
    try:
        yield
    finally:
        if bare.__spec__ is None:
            del sys.modules[_PACKAGE]


def _import_bindings() -> tuple[Any, Any, Any]:
    """The bindings of llama.cpp and of libmtmd, and the library of ggml."""
    with _bare_package():
        import llama_cpp.llama_cpp as llama
        import llama_cpp.mtmd_cpp as mtmd
        from llama_cpp._ggml import libggml
    return llama, mtmd, libggml


lib, mtmd, ggml = _import_bindings()


def extension() -> Any:
    """The bindings of llama.cpp's staging header (llama-ext.h). Imports all of the package. Raises AttributeError if
    the library lacks one of its functions."""
    import llama_cpp.llama_cpp_ext as staging

    return staging


def bindings_version() -> str:
    """Imports all of the package."""
    import llama_cpp

    return llama_cpp.__version__


def ggml_function(name: str, restype: Any, argtypes: list[Any]) -> Any:
    """A function of libggml that the bindings do not declare."""
    return _declared(getattr(ggml, name), restype, argtypes)


def llama_function(name: str, restype: Any, argtypes: list[Any]) -> Any:
    """A function of libllama that the bindings do not declare."""
    return _declared(getattr(lib._lib, name), restype, argtypes)


def _declared(function: Any, restype: Any, argtypes: list[Any]) -> Any:
    function.restype = restype
    function.argtypes = argtypes
    return function
