"""A coding agent's 24 tools in every format: enforced without a warning, once compiled kept."""

from __future__ import annotations

import json

import pytest

from jan_serve.chat.chat_format import ChatFormat
from jan_serve.chat.detect import FORMATS
from jan_serve.generation.constraint import compile_tools
from jan_serve.generation.constraint.grammar_cache import GrammarCache
from jan_serve.helpers.kinds import Compiled, CompileRequest
from tests.integration.generation.constraint.test_call_grammar import tools
from tests.support.helpers.compiling import translate_inline

pytestmark = pytest.mark.anyio


class Counting:
    """Counts compilations."""

    def __init__(self) -> None:
        self.count = 0

    async def translate(self, request: CompileRequest) -> Compiled:
        self.count += 1
        return await translate_inline(request)


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
async def test_they_are_enforced_and_compiled_once(form: ChatFormat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_tools, "TOOLS_S", 600.0)  # of a machine that may be busy
    translator = Counting()
    cache = GrammarCache(translator.translate)
    for _ in range(2):
        calls = await cache.compile_calls(form, tools(), parallel=True, constraint=None)
        assert calls.warnings == ()
    schemas = {json.dumps(tool.parameters) for tool in tools()}
    # The others are the frame, and what a tool without a schema is held to.
    assert translator.count == len(schemas) + 2
