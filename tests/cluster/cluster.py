"""The cluster as its user sees it: commands, nodes of the proxy, requests that go on meanwhile."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psutil

from tests.support.clients.raw_http import RawResponse, connect, post, post_bytes
from tests.support.deadline import deadline
from tests.support.processes import wait_until
from tests.support.servers.proxied import nodes_of

CHAT: Final = "/v1/chat/completions"
DONE: Final = b"data: [DONE]"
LIMIT_S: Final = 240.0
_REPLICA: Final = "cluster-replica"


class TestedCluster:
    """machines: the process of tests.cluster.ray_machines."""

    __test__ = False

    def __init__(
        self,
        folder: Path,
        proxy: str,
        address: str,
        variables: dict[str, str],
        machines: subprocess.Popen[str],
    ) -> None:
        self.proxy = proxy
        self.address = address
        self._folder = folder
        self._variables = variables
        self._machines = machines

    def command(self, *words: str) -> str:
        """Standard output of `jan-serve cluster ...`, which must succeed."""
        command = [sys.executable, "-P", "-m", "jan_serve", "cluster", *words]
        done = subprocess.run(
            command,
            env=self._variables,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def up(self, serve: str = "", **replicas: float) -> None:
        """`up` with a file of these replicas; at the end, all of them are nodes of the proxy."""
        file = self._folder / "cluster.toml"
        lines = [f'proxy_url = "{self.proxy}"', f'ray_address = "{self.address}"', "[replicas]"]
        lines += [f"{name} = {value}" for name, value in ({"drain_s": 60} | replicas).items()]
        file.write_text("\n".join([*lines, "[serve]", serve]), encoding="utf-8")
        self.command("up", str(file))

    def machine(self, what: str) -> None:
        """add or lose one."""
        assert self._machines.stdin is not None and self._machines.stdout is not None
        self._machines.stdin.write(f"{what}\n")
        self._machines.stdin.flush()
        with deadline(self._machines, LIMIT_S):
            assert self._machines.stdout.readline() == "done\n"

    def urls(self) -> set[str]:
        """Nodes that get requests."""
        return {node["url"] for node in nodes_of(self.proxy) if node["routable"]}

    def wait_for(self, number: int) -> set[str]:
        """Until so many nodes get requests."""
        wait_until(lambda: len(self.urls()) == number, LIMIT_S)
        return self.urls()

    def server_of(self, url: str) -> psutil.Process:
        """The process of a replica's server; its parent is Ray's actor."""
        port = int(url.rpartition(":")[2])
        for process in psutil.process_iter(["cmdline"]):
            if _REPLICA in (process.info["cmdline"] or []) and port in _ports(process):
                return process
        raise AssertionError(f"no replica listens at {url}")

    def ask(self, **fields: Any) -> RawResponse:
        return post(self.proxy, CHAT, request(**fields))

    @contextmanager
    def stream(self, tokens: int, url: str | None = None) -> Generator[Stream]:
        """A stream that has begun. url: of a node; None asks the proxy."""
        url = url or self.proxy
        body = request(stream=True, ignore_eos=True, max_tokens=tokens)
        with connect(url, timeout_s=LIMIT_S) as connection:
            connection.send(post_bytes(url, CHAT, body, {"connection": "close"}))
            head = connection.read_until(b"\r\n\r\n").decode("latin-1")
            assert " 200 " in head.splitlines()[0], head
            connection.read_until(b"data: ")
            stream = Stream(_node_of(head), connection.read_rest)
            try:
                yield stream
            finally:
                stream.wait()

    @contextmanager
    def load(self, clients: int, pause_s: float) -> Generator[Load]:
        """Requests, streamed and not, until the end of the block or `stop`. pause_s: of each client after an answer."""
        load = Load(self, pause_s)
        threads = [threading.Thread(target=load.run, args=(number,)) for number in range(clients)]
        for thread in threads:
            thread.start()
        try:
            yield load
        finally:
            load.stop.set()
            for thread in threads:
                thread.join()


class Stream:
    """Read from the start: a server waits for a client that does not read."""

    def __init__(self, node: str, read_rest: Callable[[], bytes]) -> None:
        self.node = node
        self._read_rest = read_rest
        self._rest = b""
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def wait(self) -> None:
        self._reading.join()

    def end(self) -> bytes:
        """The last bytes; waits for them."""
        self.wait()
        return self._rest[-500:]

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # it is not whole then
            self._rest = self._read_rest()


class Load:
    """answered: nodes that answered. failed: what came instead of an answer."""

    def __init__(self, cluster: TestedCluster, pause_s: float) -> None:
        self.stop = threading.Event()
        self.answered: list[str] = []
        self.failed: list[str] = []
        self._cluster = cluster
        self._pause_s = pause_s

    def run(self, number: int) -> None:
        while not self.stop.wait(self._pause_s):
            try:
                if number % 3 == 0:
                    with self._cluster.stream(40) as stream:
                        end, node = stream.end(), stream.node
                    problem = None if DONE in end else f"a stream was cut: {end!r}"
                else:
                    answer = self._cluster.ask(max_tokens=8)
                    node = answer.headers.get("x-jan-serve-node", "")
                    problem = None if answer.status == 200 else f"{answer.status} {answer.body!r}"
            except (OSError, EOFError, AssertionError) as error:
                self.failed.append(repr(error))
                continue
            if problem is None:
                self.answered.append(node)
            else:
                self.failed.append(problem)


def request(**fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "Hello!"}]
    return {"model": "jan-tiny", "messages": messages, "temperature": 0, "max_tokens": 16, **fields}


def _node_of(head: str) -> str:
    """The node that answers, by the proxy's word; empty if a node was asked."""
    fields = dict(line.split(": ", 1) for line in head.splitlines() if ": " in line)
    return fields.get("x-jan-serve-node", "")


def _ports(process: psutil.Process) -> set[int]:
    return {each.laddr.port for each in process.net_connections("inet") if each.status == psutil.CONN_LISTEN}
