"""Imports, and what is made once, without the garbage collector."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Generator


@contextlib.contextmanager
def quick_imports() -> Generator[None]:
    """Hold the collector back during imports, which leave no garbage: it takes 7 % of the start to find that out.
    Afterwards it no longer visits what they made, which lives as long as the process. A full collection takes 50 ms
    for 100,000 objects, and the event loop waits for it."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
