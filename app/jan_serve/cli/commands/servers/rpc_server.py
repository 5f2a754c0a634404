"""`jan-serve rpc-server`: lends the devices of this machine to a jan-serve on another one.
The relay admits clients by their network. ggml's RPC server serves one client at a time and admits anyone. Here each
client's bytes go to a process on a port of this machine; a client that crashes its process crashes no other's.
Processes whose client has left serve the next one. A client gets its process with the first byte that it sends."""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import os
import selectors
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Annotated, Final, NamedTuple

from jan_serve.cli.arguments import JsonOption, option
from jan_serve.cli.errors import WrongUse
from jan_serve.cli.output import output
from jan_serve.cli.server.listen import listen
from jan_serve.config.fields import bytes_of_size
from jan_serve.core.hosts import address_of, is_loopback
from jan_serve.logs.log_lines import configure_logging
from jan_serve.supervisor.workers.child_process import child_environment, own_command

logger = logging.getLogger(__name__)

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_PIECE_BYTES: Final = 1 << 18
_READY_S: Final = 60.0
_RETRY_S: Final = 0.02
_KEPT_IDLE: Final = 1
_KEEPALIVE_S: Final = 30
MAX_CLIENTS: Final = 32
"""Each has a process, which takes some 30 MB before it holds any weights. A server has one client for each model."""
MAX_SILENT: Final = 32
"""Connections that have sent nothing. One more takes the place of the oldest."""
_SILENT_S: Final = 30.0


class LendingProcess:
    """A process that lends devices on a local port."""

    def __init__(self, arguments: Sequence[str]) -> None:
        """Starts it. Call in the main thread: on Linux the process ends with the thread that started it."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = int(free.getsockname()[1])
        command = [*own_command("worker"), "--rpc-serve", "--endpoint", f"127.0.0.1:{self._port}", *arguments]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=child_environment(os.environ)
        )

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def connect(self) -> socket.socket:
        """Blocks until it listens. Raises ConnectionError if it does not."""
        deadline = time.monotonic() + _READY_S
        while True:
            try:
                return socket.create_connection(("127.0.0.1", self._port))
            except ConnectionRefusedError:
                if not self.is_alive or time.monotonic() > deadline:
                    raise
                time.sleep(_RETRY_S)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


class _Silent(NamedTuple):
    """A client that has sent nothing. until: monotonic seconds."""

    host: str
    until: float


class RpcRelay:
    """Accepts clients until it is closed."""

    def __init__(
        self, listener: socket.socket, networks: Sequence[Network], arguments: Sequence[str]
    ) -> None:
        """networks: clients of these and of this machine are admitted. arguments: of each process that lends."""
        self._listener = listener
        self._networks = networks
        self._arguments = tuple(arguments)
        self._lock = threading.Lock()
        self._idle: list[LendingProcess] = []
        self._busy: set[LendingProcess] = set()
        self._silent: dict[socket.socket, _Silent] = {}
        self._wake, self._woken = socket.socketpair()

    def run(self, on_ready: Callable[[], None] = lambda: None) -> None:
        """Blocks until `close`. The first process starts at once, so that the first client waits less."""
        try:
            self._idle.append(LendingProcess(self._arguments))
            on_ready()
            with selectors.DefaultSelector() as selector:
                selector.register(self._listener, selectors.EVENT_READ)
                selector.register(self._woken, selectors.EVENT_READ)
                self._accept_and_serve(selector)
        finally:
            self._end()

    def close(self) -> None:
        """Have `run` end all processes and return. Any thread or signal handler may call it."""
        with contextlib.suppress(OSError):
            self._wake.send(b"x")

    def _accept_and_serve(self, selector: selectors.BaseSelector) -> None:
        while True:
            ready = [key.fileobj for key, _ in selector.select(_SILENT_S if self._silent else None)]
            if self._woken in ready:
                return
            for each in ready:
                if isinstance(each, socket.socket) and each in self._silent:
                    selector.unregister(each)
                    self._begin(each, self._silent.pop(each).host)
            if self._listener in ready:
                self._accept(selector)
            while self._silent and next(iter(self._silent.values())).until < time.monotonic():
                self._drop_oldest(selector)

    def _accept(self, selector: selectors.BaseSelector) -> None:
        try:
            client, address = self._listener.accept()
        except OSError as error:  # the client is gone again, or there are too many
            logger.warning("a client cannot be accepted: %s", error)
            if self._silent:
                self._drop_oldest(selector)
            else:
                time.sleep(_RETRY_S)
            return
        host = str(address[0])
        if not is_admitted(host, self._networks):
            logger.warning("a client from %s is not in the allowed networks", host)
            client.close()
            return
        if len(self._silent) >= MAX_SILENT:
            self._drop_oldest(selector)
        selector.register(client, selectors.EVENT_READ)
        self._silent[client] = _Silent(host, time.monotonic() + _SILENT_S)

    def _drop_oldest(self, selector: selectors.BaseSelector) -> None:
        client = next(iter(self._silent))
        host = self._silent.pop(client).host
        logger.warning("a client from %s has sent nothing, and is dropped", host)
        selector.unregister(client)
        client.close()

    def _begin(self, client: socket.socket, host: str) -> None:
        """Whatever fails ends this client only."""
        if len(self._busy) >= MAX_CLIENTS:
            logger.warning("a client from %s is refused: %d are served, the limit", host, MAX_CLIENTS)
            client.close()
            return
        process: LendingProcess | None = None
        try:
            _keep_alive(client)
            process = self._taken()
            logger.info("a client from %s begins", host)
            threading.Thread(target=self._serve, args=(client, host, process), daemon=True).start()
        except (OSError, RuntimeError) as error:  # no descriptor, process or thread is left
            logger.warning("a client from %s cannot be served: %s", host, error)
            client.close()
            if process is not None:
                self._give_back(process)

    def _taken(self) -> LendingProcess:
        with self._lock:
            while self._idle:
                process = self._idle.pop()
                if process.is_alive:
                    break
            else:
                process = LendingProcess(self._arguments)
            self._busy.add(process)
            return process

    def _serve(self, client: socket.socket, host: str, process: LendingProcess) -> None:
        try:
            with client, process.connect() as inner:
                inner.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                back = threading.Thread(target=_pump, args=(inner, client), daemon=True)
                back.start()
                _pump(client, inner)
                back.join()
        except OSError as error:
            logger.warning("the process for the client from %s cannot be reached: %s", host, error)
        logger.info("the client from %s has left", host)
        self._give_back(process)

    def _give_back(self, process: LendingProcess) -> None:
        with self._lock:
            self._busy.discard(process)
            if process.is_alive and len(self._idle) < _KEPT_IDLE:
                self._idle.append(process)
                return
        process.stop()

    def _end(self) -> None:
        with self._lock:
            for process in (*self._idle, *self._busy):
                process.stop()
        for each in (self._listener, self._wake, self._woken, *self._silent):
            each.close()


def is_admitted(host: str, networks: Sequence[Network]) -> bool:
    """Whether an address is of this machine or in one of the networks."""
    address = address_of(host)
    return is_loopback(host) or (address is not None and any(address in network for network in networks))


def _pump(source: socket.socket, target: socket.socket) -> None:
    """Pass bytes on until one side ends; then both are ended, so that the other direction ends too."""
    buffer = memoryview(bytearray(_PIECE_BYTES))
    try:
        while count := source.recv_into(buffer):
            target.sendall(buffer[:count])
    except OSError:
        pass  # either side is gone: the same end
    for each in (source, target):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def _keep_alive(client: socket.socket) -> None:
    """A client whose machine is gone frees its memory within minutes."""
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", _KEEPALIVE_S), ("TCP_KEEPINTVL", _KEEPALIVE_S), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            client.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


_WARNING = (
    "The protocol has neither authentication nor encryption: whoever reaches this port can use the devices, read"
    " what is computed on them, and exploit faults of ggml. Use it in a trusted network only, or through a tunnel."
)


def rpc_server(
    host: Annotated[
        str, option("--host", "Address to listen on. Any but loopback requires --allow.")
    ] = "127.0.0.1",
    port: Annotated[int, option("--port", "TCP port. 0 picks a free one.", min=0, max=65535)] = 50052,
    allow: Annotated[
        list[str] | None,
        option("--allow NETWORK", "Admit clients of this network, as 192.168.1.0/24. Repeatable."),
    ] = None,
    device: Annotated[
        list[str] | None,
        option(
            "--device",
            "Lend this device, by its name in `doctor`. Repeatable. Default: accelerators, else CPU.",
        ),
    ] = None,
    memory: Annotated[str | None, option("--memory SIZE", "Main memory to lend at most, as 24GB.")] = None,
    threads: Annotated[
        int | None, option("--threads", "CPU threads. Default: the physical cores.", min=1, max=1024)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Lend the devices of this machine to another one, where `serve --rpc HOST:PORT` uses them."""
    networks = [_network(text) for text in allow or ()]
    if isinstance(address_of(host), ipaddress.IPv6Address):
        raise WrongUse(
            f"{host} is an IPv6 address, and llama.cpp reaches its devices by IPv4 only.",
            "Listen on an IPv4 address.",
        )
    if not is_loopback(host) and not networks:
        raise WrongUse(
            f"{host} can be reached by other machines. {_WARNING}",
            "Name the network that may use it with --allow, as 192.168.1.0/24, or listen on 127.0.0.1 and use a"
            " tunnel.",
        )
    arguments = [word for name in device or () for word in ("--device", name)]
    if memory is not None:
        arguments += ["--memory", str(_bytes(memory))]
    if threads is not None:
        arguments += ["--threads", str(threads)]
    with listen(host, port) as listener:
        configure_logging("info", as_json=False)
        endpoint = f"{host}:{listener.getsockname()[1]}"
        relay = RpcRelay(listener, networks, arguments)

        def stop(_number: int, _frame: FrameType | None) -> None:
            relay.close()

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, stop)

        def ready() -> None:
            if as_json:
                output.json_line({"endpoint": endpoint})
            else:
                output.data(f"lending devices on {endpoint}: use them with jan-serve serve --rpc {endpoint}")
                output.note(_WARNING)

        relay.run(ready)


def _network(text: str) -> Network:
    try:
        network = ipaddress.ip_network(text)
    except ValueError:
        raise WrongUse(f"--allow: {text!r} is not a network such as 192.168.1.0/24") from None
    if network.prefixlen == 0:
        raise WrongUse(f"--allow: {text} is every address. {_WARNING}", "Name a network.")
    return network


def _bytes(text: str) -> int:
    found = bytes_of_size(text)
    if not isinstance(found, int) or found <= 0:
        raise WrongUse(f"--memory: {text!r} is not a size such as 24GB")
    return found
