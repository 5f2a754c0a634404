"""What helper processes do, in this process: a coverage-guided fuzzer sees only that."""

from __future__ import annotations

import contextlib
import resource
import signal
from collections.abc import Callable, Generator
from types import FrameType
from typing import Final, Protocol, TypeVar

import psutil

from jan_serve.chat.template import render_prompt
from jan_serve.compiling.worker import Compiling
from jan_serve.errors import GrammarTooComplex, InvalidRequest, JanServeError, TemplateError
from jan_serve.ipc.compiling import Compiled
from jan_serve.ipc.media_decoding import DecodeImage, DecodeMedia
from jan_serve.ipc.rendering import RenderRequest
from jan_serve.media_decoding.audio import decoded as decoded_audio
from jan_serve.media_decoding.images import decoded as decoded_image

_CPU_LIMIT_S: Final = 8.0
"""More than the processes have, as code that counts coverage is slower."""

_MEMORY_LIMIT_BYTES: Final = 1 << 30
"""On top of the current use: the most that one of the processes has."""


class Compiler(Protocol):
    async def translate(self, request: bytes) -> Compiled: ...
    async def close(self) -> None: ...


class Renderer(Protocol):
    async def render(self, request: RenderRequest) -> str: ...
    async def close(self) -> None: ...


class Decoder(Protocol):
    async def decode(self, request: DecodeMedia) -> bytes: ...
    async def close(self) -> None: ...


Pool = TypeVar("Pool", Compiler, Renderer, Decoder)
Opener = Callable[[], Pool]


class InProcess:
    """A Compiler, Renderer and Decoder. Main thread only."""

    async def translate(self, request: bytes) -> Compiled:
        with _limited(GrammarTooComplex("too much work")):
            return Compiling().answer(request).compiled()

    async def render(self, request: RenderRequest) -> str:
        with _limited(TemplateError("too much work")):
            return render_prompt(request.prompt, request.facts, lambda: request.now)

    async def decode(self, request: DecodeMedia) -> bytes:
        with _limited(InvalidRequest("too much work")):
            if isinstance(request, DecodeImage):
                return decoded_image(request.data, request.header, request.size)
            return decoded_audio(request.data, request.header, request.rate)

    async def close(self) -> None:
        pass


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
