"""What helper processes do, in this process: a coverage-guided fuzzer sees only that."""

from __future__ import annotations

import contextlib
import resource
import signal
from collections.abc import Callable, Generator
from types import FrameType
from typing import Any, Final, Protocol

import psutil

from jan_serve.chat.template import render_prompt
from jan_serve.errors import GrammarTooComplex, InvalidRequest, JanServeError, TemplateError
from jan_serve.helpers.work.compiling import compiled
from jan_serve.helpers.work.media import decoded

_CPU_LIMIT_S: Final = 8.0
"""More than the processes have, as code that counts coverage is slower."""

_MEMORY_LIMIT_BYTES: Final = 1 << 30
"""On top of the current use: the most that one of the processes has."""


class Helpers(Protocol):
    """A HelperPool, or what stands in for one."""

    async def ask(self, request: Any) -> Any: ...
    async def close(self) -> None: ...


Opener = Callable[[], Helpers]


class InProcess:
    """The work of one kind of helper. Main thread only. too_much: the error of a request beyond the limits."""

    def __init__(self, work: Callable[[Any], Any], too_much: JanServeError) -> None:
        self._work = work
        self._too_much = too_much

    async def ask(self, request: Any) -> Any:
        with _limited(self._too_much):
            return self._work(request)

    async def close(self) -> None:
        pass


def compilers() -> Helpers:
    return InProcess(compiled, GrammarTooComplex("too much work"))


def renderers() -> Helpers:
    return InProcess(render_prompt, TemplateError("too much work"))


def decoders() -> Helpers:
    return InProcess(decoded, InvalidRequest("too much work"))


@contextlib.contextmanager
def _limited(error: JanServeError) -> Generator[None]:
    """Raises the error in the block when it has used the CPU time, or the address space, that it may."""

    def end(_number: int, _frame: FrameType | None) -> None:
        raise error

    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, _CPU_LIMIT_S)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (psutil.Process().memory_info().vms + _MEMORY_LIMIT_BYTES, hard))
    try:
        yield
    except MemoryError:
        raise error from None
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
