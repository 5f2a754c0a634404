"""Records what coding agents send over a task of ten calls: `python -m tests.clients.record_agents FOLDER [NAME …]`.

The agents on the path run headless, each in a home of its own, against a scripted model that calls their shell tool for
one file after another. FOLDER/NAME.jsonl gets each request with its path, for `benchmarks.session_replay`. The texts of
the agents belong to their makers: recordings stay out of the repository. Nothing but loopback is reached.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from aiohttp import ClientSession, web

from jan_serve.editors.launches import LAUNCHES, Start
from jan_serve.editors.recipe import EditorModel, Folders, ServerFacts
from jan_serve.editors.recipes import RECIPES
from jan_serve.ipc.messages import EngineEvent, EngineRequest
from tests.contract.anthropic.test_messages import TEMPLATE
from tests.support.engine.fake_client import FakeClient, FakeModels, fake_facts, prompt_text, saying
from tests.support.servers.fronts import live_server

MODEL: Final = "recorded"
N_CTX: Final = 262_144
CALLS: Final = 9
LIMIT_S: Final = 300
TASK: Final = (
    "Read step-1.txt to step-9.txt with your shell, one after another, and name what they have in common."
)
_SHELLS: Final[dict[str, Callable[[str], dict[str, Any]]]] = {
    "Bash": lambda line: {"command": line, "description": "Read the next file."},
    "bash": lambda line: {"command": line, "description": "Read the next file."},
    "exec_command": lambda line: {"cmd": line},
    "shell": lambda line: {"command": ["bash", "-lc", line]},
    "run_shell_command": lambda line: {"command": line, "is_background": False},
    "execute_command": lambda line: {"command": line, "requires_approval": False},
    "run_commands": lambda line: {"commands": [line]},
}
"""Shell tools of agents, and the arguments of a line."""


@dataclass(frozen=True)
class Agent:
    """first, arguments: before and after those of its start; the task is last. start: its name in LAUNCHES."""

    command: str
    arguments: tuple[str, ...]
    start: str
    first: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict[str, str])


_NO_PROXY: Final = {"HTTP_PROXY": "", "HTTPS_PROXY": ""}
"""The environment of programs that would send requests to loopback through a proxy too."""

AGENTS: Final[dict[str, Agent]] = {
    "claude": Agent("claude", ("--allowedTools", "Bash", "-p"), "claude", (), {"DISABLE_AUTOUPDATER": "1"}),
    "codex": Agent(
        "codex", ("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"), "codex", ("exec",)
    ),
    "opencode": Agent("opencode", ("--auto",), "opencode", ("run",)),
    "qwen": Agent("qwen", ("--yolo", "-p"), "qwen", (), _NO_PROXY),
    "pi": Agent("pi", ("-p",), "pi"),
    "kimi": Agent("kimi", ("-p",), "kimi"),
    "copilot-cli": Agent("copilot", ("--allow-all-tools", "-p"), "copilot-cli"),
    "cline": Agent("cline", ("--auto-approve", "true"), "cline"),
}


class Script:
    """A model that reads one file a turn, and then answers."""

    def __init__(self) -> None:
        self.prompts = 0

    async def __call__(self, request: EngineRequest) -> AsyncIterator[EngineEvent]:
        answer = self._answer(prompt_text(request))
        self.prompts += 1
        async for event in saying(*(answer[at : at + 9] for at in range(0, len(answer), 9)))(request):
            yield event

    @staticmethod
    def _answer(prompt: str) -> str:
        tools = prompt.partition("</tools>")[0]
        shell = next((name for name in _SHELLS if f'"name": "{name}"' in tools), None)
        done = sum(f"content of step {step}:" in prompt for step in range(1, CALLS + 1))
        if shell is None or done == CALLS:
            return "All of them have words in common."
        arguments = _SHELLS[shell](f"cat step-{done + 1}.txt")
        call = json.dumps({"name": shell, "arguments": arguments})
        return f"The next file is step {done + 1}.\n<tool_call>\n{call}\n</tool_call>"


async def recorded(name: str, folder: Path) -> list[dict[str, Any]]:
    """The requests with a prompt, in order. Writes what the program prints beside them."""
    agent, seen = AGENTS[name], list[dict[str, Any]]()
    facts = fake_facts(n_ctx=N_CTX, chat_templates={"default": TEMPLATE})
    models = FakeModels(FakeClient(MODEL, facts, Script()))
    with tempfile.TemporaryDirectory() as home:
        for step in range(1, CALLS + 1):
            words = " ".join(f"word{(step * 37 + number * 11) % 500}" for number in range(110))
            Path(home, f"step-{step}.txt").write_text(f"content of step {step}: {words}\n")
        async with (
            live_server(models) as port,
            ClientSession() as client,
            _recorder(client, port, seen) as own,
        ):
            start = _start(agent, Path(home), own)
            with open(folder / f"{name}.out", "wb") as output:
                process = await asyncio.create_subprocess_exec(
                    agent.command, *agent.first, *start.arguments, *agent.arguments, TASK,
                    cwd=home, env=_environment(Path(home), start.environment, agent.environment),
                    stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=asyncio.subprocess.STDOUT,
                )  # fmt: skip
            try:
                async with asyncio.timeout(LIMIT_S):
                    await process.wait()
            except TimeoutError:
                sys.stderr.write(f"{name}: not done after {LIMIT_S} s\n")
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
    return seen


def _recorder(client: ClientSession, port: int, seen: list[dict[str, Any]]) -> Any:
    """A server that writes down what it passes on; its value is its port."""

    async def relay(request: web.Request) -> web.StreamResponse:
        body = await request.read()
        if request.method == "POST" and body.startswith(b"{"):
            headers = {
                name: value for name, value in request.headers.items() if name.startswith("anthropic-")
            }
            seen.append({"path": request.path_qs, "headers": headers, "body": json.loads(body)})
        kept = {name: value for name, value in request.headers.items() if name.lower() not in _HOP}
        target = f"http://127.0.0.1:{port}{request.path_qs}"
        async with client.request(request.method, target, data=body, headers=kept) as answer:
            shown = {name: value for name, value in answer.headers.items() if name.lower() not in _HOP}
            response = web.StreamResponse(status=answer.status, headers=shown)
            await response.prepare(request)
            async for piece in answer.content.iter_any():
                await response.write(piece)
            return response

    @contextlib.asynccontextmanager
    async def serving() -> AsyncGenerator[int]:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/{path:.*}", relay)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            yield runner.addresses[0][1]
        finally:
            await runner.cleanup()

    return serving()


_HOP: Final = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "content-encoding", "accept-encoding"}
)


def _start(agent: Agent, home: Path, port: int) -> Start:
    """As `jan-serve launch` starts it, with the settings file that its recipe writes."""
    model = EditorModel(MODEL, N_CTX, is_chat=True, is_embedding=False)
    facts = ServerFacts(f"http://127.0.0.1:{port}", needs_key=False, models=(model,), model=model)
    folders = Folders(home, home / ".config", home / ".code", home / ".zed")
    change, path = RECIPES[agent.start](facts, folders).change, home
    if change is not None:
        path = change.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(change.merge(""))
    return LAUNCHES[agent.start].start(facts, "none", path)


def _environment(home: Path, *more: dict[str, str]) -> dict[str, str]:
    nobody = "http://127.0.0.1:9"
    own = {"PATH": os.environ["PATH"], "HOME": str(home), "HTTP_PROXY": nobody, "HTTPS_PROXY": nobody}
    own |= {"NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost"}
    for values in more:
        own |= values
    return own


async def main(folder: Path, names: Sequence[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        requests = await recorded(name, folder)
        path = folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps(request) + "\n" for request in requests))
        sys.stdout.write(f"{name}: {len(requests)} requests, {path.stat().st_size / 1e6:.1f} MB\n")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2:] or list(AGENTS)))
