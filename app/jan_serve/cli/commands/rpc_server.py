"""`jan-serve rpc-server`: lends the devices of this machine to a jan-serve on another one."""

from __future__ import annotations

import ipaddress
import signal
from types import FrameType
from typing import Annotated

import typer

from jan_serve.cli.errors import WRONG_USE, CommandError
from jan_serve.cli.options import JsonOption
from jan_serve.cli.output import Output
from jan_serve.cli.server.listen import listen
from jan_serve.cli.server.rpc_relay import Network, RpcRelay
from jan_serve.config.value_types import bytes_of_size
from jan_serve.core.hosts import address_of, is_loopback
from jan_serve.logs.log_lines import configure_logging

_WARNING = (
    "The protocol has neither authentication nor encryption: whoever reaches this port can use the devices, read"
    " what is computed on them, and exploit faults of ggml. Use it in a trusted network only, or through a tunnel."
)


def rpc_server(
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on. Any but loopback requires --allow.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="TCP port. 0 picks a free one.")
    ] = 50052,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            "--allow", metavar="NETWORK", help="Admit clients of this network, as 192.168.1.0/24. Repeatable."
        ),
    ] = None,
    device: Annotated[
        list[str] | None,
        typer.Option(
            "--device",
            help="Lend this device, by its name in `doctor`. Repeatable. Default: accelerators, else CPU.",
        ),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option("--memory", metavar="SIZE", help="Main memory to lend at most, as 24GB."),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option("--threads", min=1, max=1024, help="CPU threads. Default: the physical cores."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Lend the devices of this machine to another one, where `serve --rpc HOST:PORT` uses them."""
    networks = [_network(text) for text in allow or ()]
    if isinstance(address_of(host), ipaddress.IPv6Address):
        raise CommandError(
            f"{host} is an IPv6 address, and llama.cpp reaches its devices by IPv4 only.",
            "Listen on an IPv4 address.",
            WRONG_USE,
        )
    if not is_loopback(host) and not networks:
        raise CommandError(
            f"{host} can be reached by other machines. {_WARNING}",
            "Name the network that may use it with --allow, as 192.168.1.0/24, or listen on 127.0.0.1 and use a"
            " tunnel.",
            WRONG_USE,
        )
    arguments = [word for name in device or () for word in ("--device", name)]
    if memory is not None:
        arguments += ["--memory", str(_bytes(memory))]
    if threads is not None:
        arguments += ["--threads", str(threads)]
    output = Output()
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
        raise CommandError(
            f"--allow: {text!r} is not a network such as 192.168.1.0/24", None, WRONG_USE
        ) from None
    if network.prefixlen == 0:
        raise CommandError(f"--allow: {text} is every address. {_WARNING}", "Name a network.", WRONG_USE)
    return network


def _bytes(text: str) -> int:
    found = bytes_of_size(text)
    if not isinstance(found, int) or found <= 0:
        raise CommandError(f"--memory: {text!r} is not a size such as 24GB", None, WRONG_USE)
    return found
