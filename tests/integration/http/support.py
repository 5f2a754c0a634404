"""The server process of the HTTP tests: real llama.cpp on tiny models, and checks after every test."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import psutil

from tests.support import processes
from tests.support.clients.raw_http import RawConnection, RawResponse, get, post, post_bytes
from tests.support.processes import wait_until
from tests.support.servers.served import Served, serving

COMPLETIONS: Final = "/v1/completions"
CHATS: Final = "/v1/chat/completions"
N_CTX: Final = 512
VOCABULARY: Final = 566
GREEDY: Final[dict[str, Any]] = {"temperature": 0, "repeat_penalty": 1.0}
# F32 on one thread: the rest of the batch does not change a greedy choice.
EXACT_FLAGS: Final = ("--flash-attn", "off", "--type-k", "f32", "--type-v", "f32", "--threads", "1")
LONG_CTX: Final = 16384
ENDLESS: Final[dict[str, Any]] = {"max_tokens": LONG_CTX - 400, "ignore_eos": True}
"""Fields of an answer in a context of LONG_CTX that takes seconds on any machine: it runs until it is cancelled."""

HEALTH_LIMIT_S: Final = 20.0
"""The documented limit is 100 ms; a test machine has other work."""


@contextlib.contextmanager
def serving_models(folder: Path, *models: Path, flags: tuple[str, ...] = ()) -> Generator[Served]:
    """A server over these files, the first as the default; it listens when the block begins."""
    shelf = folder / "models"
    shelf.mkdir(parents=True, exist_ok=True)
    for model in models:
        shutil.copyfile(model, shelf / model.name)
    start = ("--port", "0", "--models-dir", str(shelf), "--model", models[0].stem, *EXACT_FLAGS)
    with serving(folder, *start, *flags) as server:
        server.url()
        yield server


def complete(url: str, prompt: object = "hello", **fields: Any) -> RawResponse:
    """One greedy completion, unless the fields say otherwise."""
    return post(url, COMPLETIONS, {"prompt": prompt, **GREEDY, **fields})


def text_of(response: RawResponse) -> str:
    """The completion's text."""
    assert response.status == 200, response.body[:500]
    text: str = response.json()["choices"][0]["text"]
    return text


def error_of(response: RawResponse) -> dict[str, Any]:
    """The error of a rejected request."""
    error: dict[str, Any] = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


def workers_of(server: Served) -> list[psutil.Process]:
    """The processes of the server's models."""
    return processes.workers_of(server.process.pid)


def metric(url: str, name: str, **labels: str) -> float:
    """The value of a metric, summed over the other labels; 0 while it has none."""
    page = get(url, "/metrics").body.decode()
    total = 0.0
    for found in re.finditer(rf"^{name}(?:\{{(.*)\}})? (\S+)$", page, re.MULTILINE):
        if all(f'{key}="{value}"' in (found[1] or "") for key, value in labels.items()):
            total += float(found[2])
    return total


def _subcommands(process: psutil.Process) -> set[str]:
    """Subcommands of its children, as far as they have not ended."""
    found: set[str] = set()
    for child in process.children():
        with contextlib.suppress(psutil.NoSuchProcess):
            found.update(child.cmdline()[-1:])
    return found


def _num_files(process: psutil.Process) -> int:
    """Without those of the databases, two each, which are opened at their first use."""
    databases = [file for file in process.open_files() if ".sqlite3" in file.path]
    assert len(databases) == len({file.path for file in databases})
    return process.num_fds() - len(databases)


class Healthy:
    """A server whose golden answer is known. `check` passes after every fault that it has to survive."""

    def __init__(self, server: Served) -> None:
        self.server = server
        self.url = server.url()
        self.golden = self._answer()
        process = psutil.Process(server.process.pid)
        # The processes for templates and constraints start within a second of the first load.
        wait_until(lambda: {"render", "compile"} <= _subcommands(process))
        self._files = _num_files(process)

    def _answer(self) -> str:
        return text_of(complete(self.url, "hello", max_tokens=8))

    def check(self, *secrets: str) -> None:
        """Alive, in time, the same answer, one worker and no zombie, no leaked files, no prompts in the log.

        secrets: texts of requests and keys, which no log line may hold.
        """
        assert self.server.process.poll() is None
        start = time.monotonic()
        health = get(self.url, "/health")
        assert time.monotonic() - start < HEALTH_LIMIT_S
        assert (health.status, health.json()["pid"]) == (200, self.server.process.pid)
        assert self._answer() == self.golden
        (worker,) = workers_of(self.server)
        assert worker.status() != psutil.STATUS_ZOMBIE
        process = psutil.Process(self.server.process.pid)
        wait_until(lambda: _num_files(process) <= self._files + 2)
        assert_clean_log(self.server, *secrets)


def assert_clean_log(server: Served, *secrets: str) -> None:
    """No traceback, and no text that came with requests."""
    log = server.log
    for words in ("Traceback", *secrets):
        assert words not in log, words


def start_stream(connection: RawConnection, url: str, prompt: str, **fields: Any) -> str:
    """Begin a streamed completion; the text of its first event with text."""
    send_stream(connection, url, prompt, **fields)
    return first_text(connection)


def send_stream(connection: RawConnection, url: str, prompt: str, **fields: Any) -> None:
    connection.send(post_bytes(url, COMPLETIONS, {"prompt": prompt, "stream": True, **GREEDY, **fields}))


def first_text(connection: RawConnection) -> str:
    assert b" 200 OK" in connection.read_until(b"\r\n\r\n")
    while True:
        line = connection.read_until(b"\n")
        if line.startswith(b"data: {"):
            text: str = json.loads(line[6:])["choices"][0]["text"]
            if text:
                return text


def rest_of_stream(connection: RawConnection) -> list[str]:
    """The remaining payloads."""
    return payloads(connection.read_until(b"0\r\n\r\n"))


def payloads(body: bytes) -> list[str]:
    """The `data:` payloads of an event stream."""
    return [line[6:].strip() for line in body.decode().split("\n") if line.startswith("data: ")]


def texts(events: list[str]) -> str:
    """The joined text of a completion's events."""
    bodies = [json.loads(event) for event in events if event != "[DONE]"]
    return "".join(choice["text"] for body in bodies for choice in body.get("choices", []))


def assert_one_error_at_the_end(events: list[str], code: str) -> None:
    """The stream ended with one error event, nothing after it, and no sign of success."""
    assert "[DONE]" not in events
    errors = [event for event in events if "error" in json.loads(event)]
    assert errors == events[-1:]
    assert json.loads(errors[0])["error"]["code"] == code
