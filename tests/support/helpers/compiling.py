"""Constraints compiled in the test's own process: for tests that are about something else."""

from __future__ import annotations

from jan_serve.helpers.kinds import Compiled, CompileRequest
from jan_serve.helpers.work.compiling import compiled


async def translate_inline(request: CompileRequest) -> Compiled:
    """A ConstraintTranslator. Only for constraints that the tests wrote themselves: nothing ends what runs away."""
    return compiled(request)
