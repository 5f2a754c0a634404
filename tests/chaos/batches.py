"""A batch over ends of the whole server, and the same requests online to another server.

python -m tests.chaos.batches MODEL.gguf --lines 1000 --prefixes 20 --kills 10 [--peer llama-server]

Each line must be answered once. Time and CPU seconds are those of all processes, the killed ones included.
`--live` asks a second server, without and with a batch, for first tokens.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import httpx
import psutil

CHAT: Final = "/v1/chat/completions"
_ENDED: Final = ("completed", "failed", "expired", "cancelled")


class Server:
    """A server in its own process group. `cpu_s`: of it and its workers, over all its lives."""

    def __init__(self, command: Sequence[str]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self._command = [part.replace("PORT", str(self.port)) for part in command]
        self._process: subprocess.Popen[bytes] | None = None
        self._cpu_s = 0.0
        self.url = f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        with (Path(tempfile.gettempdir()) / f"chaos-batches-{self.port}.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )
        until = time.monotonic() + 120
        while time.monotonic() < until:
            try:
                if httpx.get(f"{self.url}/health", timeout=1).status_code == 200:
                    return
            except httpx.HTTPError:
                time.sleep(0.05)
        raise TimeoutError(f"{self._command[0]} did not start")

    @property
    def cpu_s(self) -> float:
        return self._cpu_s + (self._measured() if self._process is not None else 0.0)

    def kill(self) -> None:
        """SIGKILL for the server and all that it started, at once."""
        assert self._process is not None
        self._cpu_s += self._measured()
        for process in self._family():
            process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._process = None

    def _family(self) -> list[psutil.Process]:
        assert self._process is not None
        parent = psutil.Process(self._process.pid)
        return [parent, *parent.children(recursive=True)]

    def _measured(self) -> float:
        total = 0.0
        for process in self._family():
            times = process.cpu_times()
            total += times.user + times.system
        return total


def ours(model: str, folder: Path) -> Server:
    return Server(
        [
            sys.executable, "-m", "jan_serve", "serve", "--model", model, "--port", "PORT",
            "--data-dir", str(folder), "--parallel", "8", "--n-ctx", "8192",
        ]
    )  # fmt: skip


def theirs(program: str, model: str) -> Server:
    threads = str(len(os.sched_getaffinity(0)))
    return Server(
        [program, "-m", model, "--port", "PORT", "-c", "65536", "-np", "8", "-t", threads, "--jinja"]
    )


def requests_of(lines: int, prefixes: int, words: int) -> list[dict[str, Any]]:
    """In an order that mixes the prefixes."""
    found: list[dict[str, Any]] = []
    for number in range(lines):
        prefix = number % prefixes
        system = f"Rules of set {prefix}: " + " ".join(
            f"rule{(prefix * 31 + each) % 997}" for each in range(words)
        )
        messages = [
            {"role": "system", "content": system},
            {"role": "user", "content": f"Count from {number}."},
        ]
        found.append({"messages": messages, "max_tokens": 16, "temperature": 0})
    return found


def batch_under_kills(server: Server, requests: Sequence[dict[str, Any]], kills: int) -> dict[str, float]:
    rows = [
        {"custom_id": str(number), "method": "POST", "url": CHAT, "body": {"model": "m", **body}}
        for number, body in enumerate(requests)
    ]
    content = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    server.start()
    began, cpu_s, down_s = time.monotonic(), server.cpu_s, 0.0
    with httpx.Client(base_url=server.url, timeout=60) as client:
        form: Any = {"files": {"file": ("lines.jsonl", content)}, "data": {"purpose": "batch"}}
        file = client.post("/v1/files", **form).raise_for_status().json()
        body = {"input_file_id": file["id"], "endpoint": CHAT, "completion_window": "24h"}
        batch = client.post("/v1/batches", json=body).raise_for_status().json()
    for kill in range(1, kills + 1):
        _until_done(server, batch["id"], len(requests) * kill // (kills + 1))
        stopped = time.monotonic()
        server.kill()
        server.start()
        down_s += time.monotonic() - stopped
    ended = _until_done(server, batch["id"], None)
    wall_s = time.monotonic() - began
    spent_s = server.cpu_s - cpu_s
    ids = Counter[str]()
    for name in ("output_file_id", "error_file_id"):
        if ended[name] is not None:
            text = httpx.get(f"{server.url}/v1/files/{ended[name]}/content").text
            ids.update(json.loads(line)["custom_id"] for line in text.splitlines())
    assert ids == Counter(str(number) for number in range(len(requests))), "a line is missing or twice"
    assert ended["request_counts"]["completed"] == len(requests), ended
    return {"wall_s": wall_s, "down_s": down_s, "cpu_s": spent_s}


def _until_done(server: Server, batch_id: str, lines: int | None) -> dict[str, Any]:
    """Until so many lines are answered; None: until it has ended."""
    while True:
        batch = httpx.get(f"{server.url}/v1/batches/{batch_id}", timeout=60).json()
        counts = batch["request_counts"]
        done = counts["completed"] + counts["failed"]
        if batch["status"] in _ENDED or (
            lines is not None and done >= lines and batch["status"] != "validating"
        ):
            return batch
        time.sleep(0.2)


async def online(server: Server, requests: Sequence[dict[str, Any]]) -> dict[str, float]:
    server.start()
    began, cpu_s = time.monotonic(), server.cpu_s
    left = list(reversed(requests))
    async with httpx.AsyncClient(base_url=server.url, timeout=600) as client:

        async def ask() -> None:
            while left:
                (await client.post(CHAT, json=left.pop())).raise_for_status()

        await asyncio.gather(*(ask() for _ in range(8)))
    return {"wall_s": time.monotonic() - began, "cpu_s": server.cpu_s - cpu_s}


async def first_tokens(server: Server, requests: Sequence[dict[str, Any]], rounds: int) -> list[float]:
    """Seconds to the first text of requests that come one after the other."""
    found: list[float] = []
    async with httpx.AsyncClient(base_url=server.url, timeout=600) as client:
        for number in range(rounds):
            asked = requests[number % len(requests)]
            messages = [*asked["messages"], {"role": "user", "content": f"Live {time.time_ns()}"}]
            body: dict[str, Any] = {**asked, "stream": True, "messages": messages}
            began = time.monotonic()
            async with client.stream("POST", CHAT, json=body) as answer:
                seen = False
                async for line in answer.aiter_lines():
                    if not seen and '"content":"' in line and '"content":""' not in line:
                        seen = True
                        found.append(time.monotonic() - began)
            await asyncio.sleep(0.1)
    return found


async def live_beside_a_batch(
    server: Server, requests: Sequence[dict[str, Any]], rounds: int
) -> dict[str, float]:
    """The 95th percentile of first tokens without and with a batch, in turns so that both meet the same machine."""
    server.start()
    alone, beside = list[float](), list[float]()
    rows = [
        {"custom_id": str(number), "method": "POST", "url": CHAT, "body": {"model": "m", **body}}
        for number, body in enumerate(requests_of(2_000, 20, 200))
    ]
    content = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    await first_tokens(server, requests, 3)
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
        form: Any = {"files": {"file": ("lines.jsonl", content)}, "data": {"purpose": "batch"}}
        file = (await client.post("/v1/files", **form)).raise_for_status().json()
        for _ in range(4):
            alone += await first_tokens(server, requests, rounds // 4)
            body = {"input_file_id": file["id"], "endpoint": CHAT, "completion_window": "24h"}
            batch = (await client.post("/v1/batches", json=body)).raise_for_status().json()
            await asyncio.to_thread(_until_done, server, batch["id"], 5)
            beside += await first_tokens(server, requests, rounds // 4)
            await client.post(f"/v1/batches/{batch['id']}/cancel")
            await asyncio.to_thread(_until_done, server, batch["id"], None)
    p95 = [statistics.quantiles(each, n=20)[-1] for each in (alone, beside)]
    return {
        "alone_p50_s": statistics.median(alone), "beside_p50_s": statistics.median(beside),
        "alone_p95_s": p95[0], "beside_p95_s": p95[1], "ratio_p95": p95[1] / p95[0],
    }  # fmt: skip


def _print(name: str, figures: dict[str, float]) -> None:
    print(json.dumps({name: {key: round(value, 4) for key, value in figures.items()}}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--prefixes", type=int, default=20)
    parser.add_argument("--words", type=int, default=200)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--peer")
    parser.add_argument("--live", type=int, default=0)
    given = parser.parse_args()
    requests = requests_of(given.lines, given.prefixes, given.words)
    servers: list[Server] = []
    with tempfile.TemporaryDirectory(prefix="chaos-batches-") as folder:
        try:
            if given.lines:
                servers.append(ours(given.model, Path(folder) / "a"))
                _print("batch", batch_under_kills(servers[-1], requests, given.kills))
                servers.pop().kill()
            if given.peer:
                servers.append(theirs(given.peer, given.model))
                _print("peer", asyncio.run(online(servers[-1], requests)))
                servers.pop().kill()
            if given.live:
                servers.append(ours(given.model, Path(folder) / "b"))
                asked = requests_of(given.live, 5, given.words)
                _print("live", asyncio.run(live_beside_a_batch(servers[-1], asked, given.live)))
        finally:
            for server in servers:
                server.kill()


if __name__ == "__main__":
    main()
