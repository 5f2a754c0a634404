"""Imports, and what is made once, without the garbage collector and without what can wait."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Generator


@contextlib.contextmanager
def quick_imports() -> Generator[None]:
    """For a block of imports, which leave no garbage: the collector takes 7 % of the server's start to find that out.

    Afterwards it no longer visits what they made, which lives as long as the process. A full collection takes 50 ms for
    100,000 objects, and the event loop waits for it.
    """
    gc.disable()
    try:
        with _models_built_on_use():
            yield
    finally:
        gc.freeze()
        gc.enable()


@contextlib.contextmanager
def _models_built_on_use() -> Generator[None]:
    """Building those that nobody uses, such as FastAPI's of its document, takes 10 % of the server's start.

    pydantic has `defer_build` only for models that ask for it; its default is not public. Where it is not found, or
    pydantic is not imported yet, models are built as usual.
    """
    defaults = getattr(sys.modules.get("pydantic._internal._config"), "config_defaults", {})
    before = defaults.get("defer_build", False)
    defaults["defer_build"] = True
    try:
        yield
    finally:
        defaults["defer_build"] = before
