"""How long large catalogues of tools take: `python -m tests.conformance.catalogues [--count N] [FORMAT ...]`. CPU time
of the compiling process and the front together, for tools that are new and for the same ones again; and of llguidance
in the worker, which then keeps the grammars."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

from jan_serve.chat.chat_format import ChatFormat
from jan_serve.chat.detect import FORMATS
from jan_serve.core.constraint import CallGrammars
from jan_serve.core.messages import Tool
from jan_serve.engine.constraint.grammar_factory import GrammarFactory
from jan_serve.generation.constraint import compile_tools
from jan_serve.generation.constraint.grammar_cache import GrammarCache
from tests.support.calls.catalogues import plain_tools
from tests.support.gguf.byte_vocabulary import byte_vocabulary, pieces_of
from tests.support.helpers.compiling import translate_inline


class Costs(NamedTuple):
    """Seconds of CPU time."""

    first: float
    again: float
    executors: float
    grammars: CallGrammars


async def costs(form: ChatFormat, tools: Sequence[Tool]) -> Costs:
    """Compile a catalogue twice, in this process."""
    cache = GrammarCache(translate_inline)
    started = time.process_time()
    await cache.compile_calls(form, tools, parallel=True, constraint=None)
    between = time.process_time()
    grammars = await cache.compile_calls(form, tools, parallel=True, constraint=None)
    compiled = time.process_time()
    factory = GrammarFactory(byte_vocabulary(pieces_of()))
    for grammar in (grammars.whole, *grammars.triggered):
        factory.create(grammar)
    return Costs(between - started, compiled - between, time.process_time() - compiled, grammars)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("formats", nargs="*", metavar="FORMAT", help="all, if none is named")
    parser.add_argument("--count", type=int, default=200, help="tools")
    options = parser.parse_args()
    compile_tools.TOOLS_S = 600.0  # the machine may be busy
    tools = plain_tools(options.count)
    kib = sum(len(json.dumps(tool.parameters)) for tool in tools) / 1024
    sys.stdout.write(f"{len(tools)} tools, {kib:.0f} KiB of schemas\n")
    for form in FORMATS:
        if not options.formats or form.name in options.formats:
            found = asyncio.run(costs(form, tools))
            warnings = "; ".join(found.grammars.warnings) or "no warning"
            sys.stdout.write(
                f"{form.name:16} first {found.first:.2f} s, again {1e3 * found.again:.1f} ms, "
                f"llguidance {found.executors:.2f} s, {warnings}\n"
            )
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
