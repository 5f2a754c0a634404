"""Reads the headers of the files that arrive on the pipe, one after another. The hidden command is `jan-serve headers`.

`ipc.helper` enforces the limits of CPU time and memory.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from jan_serve.chat.detect import knows_thoughts
from jan_serve.errors import InvalidModel, JanServeError, ProtocolError
from jan_serve.ipc.header_reading import HeaderRead, decode_request, frame
from jan_serve.ipc.helper import ran_out_of_memory, serve
from jan_serve.store.gguf.model_file import read_model_file

CPU_LIMIT_S: Final = 30.0
"""A model in 100 parts with a vocabulary of 262,144 tokens takes some seconds on a slow machine."""

MEMORY_LIMIT_BYTES: Final = 2 << 30
"""A header has up to 512 MiB, of which one string may be 64 MiB, and each request has half of this."""

_LOWEST: Final = 19


def main() -> int:
    """Serve requests until the pipe closes."""
    if sys.platform != "win32":
        os.nice(_LOWEST)
    return serve(_Reading(), cpu_limit_s=CPU_LIMIT_S, memory_limit_bytes=MEMORY_LIMIT_BYTES)


class _Reading:
    """A HelperWork."""

    def answer(self, body: bytes) -> HeaderRead:
        try:
            path = Path(decode_request(body).path)
            return HeaderRead(facts=read_model_file(path).facts(knows_thoughts))
        except JanServeError as error:
            return HeaderRead(code=error.code, payload=error.payload(), last=ran_out_of_memory(error))

    def refusal(self, error: MemoryError | ProtocolError) -> HeaderRead:
        reason = "needs too much memory" if isinstance(error, MemoryError) else f"cannot be read: {error}"
        failure = InvalidModel(f"the header {reason}")
        return HeaderRead(code=failure.code, payload=failure.payload())

    def frame(self, reply: HeaderRead) -> bytes:
        return frame(reply)
