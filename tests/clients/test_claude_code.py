"""Claude Code itself, headless, against the application over scripted models: `make test-clients` installs it.

The scripted model reads what Claude Code sends, 75 kB of instructions and tools, which no model of the tests follows.
Proxies that nobody serves keep the program from all other hosts.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

import pytest

from jan_serve.errors import ContextLengthExceeded, EngineCrashed
from jan_serve.ipc.messages import Accepted, Chunk, EngineEvent, EngineRequest
from tests.contract.anthropic.test_messages import TEMPLATE
from tests.support.engine.fake_client import FakeClient, FakeModels, fake_facts, prompt_text, saying
from tests.support.servers.fronts import live_server

PACKAGES: Final = Path(__file__).with_name("claude_code") / "node_modules" / "@anthropic-ai"
PROGRAM: Final = next(iter(PACKAGES.glob("claude-code-*/claude")), None)
LIMIT_S: Final = 240
MODEL: Final = "fake"
CALL: Final = (
    '<tool_call>\n{{"name": "Bash", "arguments": {{"command": "{command}", "description": "A step."}}}}'
    "\n</tool_call>"
)

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.integration,
    pytest.mark.skipif(PROGRAM is None, reason="Claude Code is not installed (make test-clients)"),
]

Answer = Callable[[str], str]
"""The answer to a prompt. Raises the error of a request."""


class Session:
    """prompts: as the scripted model got them, in order."""

    def __init__(self, answer: Answer, fails_first: EngineCrashed | None = None) -> None:
        """fails_first: breaks off the first answer."""
        self.prompts: list[str] = []
        self._answer = answer
        self._fails_first = fails_first

    async def script(self, request: EngineRequest) -> AsyncIterator[EngineEvent]:
        text = prompt_text(request)
        self.prompts.append(text)
        if self._fails_first is not None and len(self.prompts) == 1:
            yield Accepted(request.id, 3)
            yield Chunk(0, "Hal", id=request.id)
            raise self._fails_first
        answer = self._answer(text)
        async for event in saying(*(answer[start : start + 9] for start in range(0, len(answer), 9)))(
            request
        ):
            yield event


async def claude(session: Session, home: Path, prompt: str) -> str:
    """What the program prints. Fails unless it ends with 0."""
    facts = fake_facts(n_ctx=1 << 20, chat_templates={"default": TEMPLATE})
    models = FakeModels(FakeClient(MODEL, facts, session.script))
    async with live_server(models) as port:
        nobody = "http://127.0.0.1:9"
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{port}",
            "ANTHROPIC_AUTH_TOKEN": "none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "HTTP_PROXY": nobody,
            "HTTPS_PROXY": nobody,
            "NO_PROXY": "127.0.0.1",
        }
        process = await asyncio.create_subprocess_exec(
            str(PROGRAM), "-p", prompt, "--model", MODEL, "--allowedTools", "Bash",
            cwd=home, env=environment, stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            async with asyncio.timeout(LIMIT_S):
                output, errors = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert process.returncode == 0, output.decode()[-2000:] + errors.decode()[-2000:]
    return output.decode()


async def test_a_plain_answer(tmp_path: Path) -> None:
    session = Session(lambda prompt: "Hello from here.")
    assert (await claude(session, tmp_path, "Say hello")).strip() == "Hello from here."
    [prompt] = session.prompts
    assert prompt.startswith('<tools>[{"type": "function", "function": {"name": "Agent"')
    assert "x-anthropic-billing-header" not in prompt
    assert prompt.count("[system]") == 1


async def test_a_task_with_a_call_and_its_result(tmp_path: Path) -> None:
    def answer(prompt: str) -> str:
        if "[tool]made-42" in prompt:
            return "It is made-42."
        return CALL.format(command="echo made-$((40+2))")

    session = Session(answer)
    assert (await claude(session, tmp_path, "Run it")).strip() == "It is made-42."
    first, second = session.prompts
    assert second.startswith(first), "the first prompt has to stay in the prefix cache"


async def test_a_failure_in_the_stream_is_repeated(tmp_path: Path) -> None:
    session = Session(lambda prompt: "Hello again.", fails_first=EngineCrashed("The worker ended."))
    assert (await claude(session, tmp_path, "Say hello")).strip() == "Hello again."
    assert len(session.prompts) == 2


async def test_a_conversation_over_the_context_limit_is_compacted(tmp_path: Path) -> None:
    n_ctx = 120_000

    def answer(prompt: str) -> str:
        if "<summary> block" in prompt[-400:]:
            return "<analysis>Steps.</analysis>\n<summary>Five steps are done.</summary>"
        if "Five steps are done." in prompt:
            return "All counted."
        if len(prompt) > n_ctx:
            raise ContextLengthExceeded(len(prompt), n_ctx)
        return CALL.format(command="seq 1 2000")

    session = Session(answer)
    assert (await claude(session, tmp_path, "Count in steps")).strip() == "All counted."
    lengths = [len(prompt) for prompt in session.prompts]
    assert max(lengths) > n_ctx
    assert lengths[-1] < lengths[0] + 20_000
