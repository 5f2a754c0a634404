"""Constraints compiled in the test's own process: for tests that are about something else."""

from __future__ import annotations

from jan_serve.compiling.worker import Compiling
from jan_serve.errors import error_from_payload
from jan_serve.ipc.compiling import Compiled


class InlineTranslator:
    """A ConstraintTranslator. Only for constraints that the tests wrote themselves: nothing ends what runs away."""

    async def translate(self, request: bytes) -> Compiled:
        """Compiles at once."""
        reply = Compiling().answer(request)
        if reply.code is not None:
            raise error_from_payload(reply.code, reply.payload)
        compiled = reply.grammar or reply.calls
        assert compiled is not None
        return compiled
