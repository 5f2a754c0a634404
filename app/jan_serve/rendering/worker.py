"""Renders the templates that arrive on the pipe, one after another. Started as `jan-serve render`; not a user command.

`ipc.helper` enforces the limits of CPU time and memory.
"""

from __future__ import annotations

from typing import Final

from jan_serve.chat.template import render_prompt
from jan_serve.errors import JanServeError, ProtocolError, TemplateError
from jan_serve.ipc.helper import ran_out_of_memory, serve
from jan_serve.ipc.rendering import RenderReply, decode_request, frame

CPU_LIMIT_S: Final = 2.0
MEMORY_LIMIT_BYTES: Final = 256 << 20


def main() -> int:
    """Serve requests until the pipe closes."""
    return serve(_Rendering(), cpu_limit_s=CPU_LIMIT_S, memory_limit_bytes=MEMORY_LIMIT_BYTES)


class _Rendering:
    """A HelperWork."""

    def answer(self, body: bytes) -> RenderReply:
        try:
            request = decode_request(body)
            return RenderReply(text=render_prompt(request.prompt, request.facts, lambda: request.now))
        except JanServeError as error:
            return RenderReply(code=error.code, payload=error.payload(), last=ran_out_of_memory(error))

    def refusal(self, error: MemoryError | ProtocolError) -> RenderReply:
        reason = "used too much memory" if isinstance(error, MemoryError) else "wrote too much text"
        failure = TemplateError(f"the chat template {reason}", param="messages")
        return RenderReply(code=failure.code, payload=failure.payload())

    def frame(self, reply: RenderReply) -> bytes:
        return frame(reply)
