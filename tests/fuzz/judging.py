"""What a target takes and raises, and which outcomes are findings."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Awaitable, Callable, Generator
from typing import Final

from jan_serve.errors import EngineCrashed, JanServeError, ProtocolError

ANSWER_S: Final = 20.0
"""No answer takes longer, on a busy machine either."""

Fuzz = Callable[[random.Random], Awaitable[str]]
"""Takes one input and returns the name of the outcome. Raises Finding."""


class Finding(Exception):
    """A defect, with the input that shows it. seed: of its `random.Random`."""

    seed = ""

    def __init__(self, text: str, data: bytes) -> None:
        super().__init__(text)
        self.input = data


@contextlib.contextmanager
def judging(data: bytes) -> Generator[None]:
    """Only errors of our tree may leave the block, and in time of the processor: helper processes limit theirs."""
    start = time.process_time()
    try:
        yield
    except (EngineCrashed, ProtocolError) as error:
        raise Finding(f"{type(error).__name__}: {error}", data) from error
    except (JanServeError, Finding):
        raise
    except Exception as error:
        raise Finding(f"{type(error).__name__}: {error}", data) from error
    finally:
        if time.process_time() - start > ANSWER_S:
            raise Finding(f"it took {time.process_time() - start:.0f} s", data)
