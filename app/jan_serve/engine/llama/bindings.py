"""The low-level bindings, untyped: their annotations name arrays for pointers. The wrappers add types."""

from __future__ import annotations

from typing import Any

import llama_cpp.llama_cpp as _llama
from llama_cpp import __version__, _ggml

lib: Any = _llama
ggml: Any = _ggml.libggml
bindings_version: str = __version__


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
