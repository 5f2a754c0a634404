"""`jan-serve proxy`: one address for many servers."""

from __future__ import annotations

import ipaddress
import socket
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal
from urllib.parse import urlsplit

import typer

from jan_serve import __version__
from jan_serve.cli.errors import WRONG_USE, CommandError
from jan_serve.cli.interrupts import interrupts_end_at_once
from jan_serve.cli.joining import join_line, own_address
from jan_serve.cli.output import Output
from jan_serve.cli.server.listen import AlreadyServing, listen, url_of
from jan_serve.config.fields import check_url
from jan_serve.core.hosts import is_everywhere, is_loopback
from jan_serve.errors import SettingsError
from jan_serve.fleet.strategies import StrategyName
from jan_serve.http.errors import HttpError
from jan_serve.logs.log_lines import configure_logging
from jan_serve.proxy.settings import ProxySettings, Serving
from jan_serve.store.files import default_data_dir

if TYPE_CHECKING:
    from jan_serve.proxy.upstream.node_address import Network


_PROTOCOLS: Final = {"RDMA": 2, "NVLINK": 3}
_NODES = partial(typer.Option, rich_help_panel="Nodes")
_ACCESS = partial(typer.Option, rich_help_panel="Access")
_LMDEPLOY = partial(typer.Option, rich_help_panel="LMDeploy's")
_Texts = list[str] | None


_Host = Annotated[
    str,
    typer.Option("--host", "--server-name", help="Address to listen on. Any but loopback requires a key."),
]
_Strategy = Annotated[
    StrategyName,
    _NODES(
        "--strategy",
        "--routing-strategy",
        help="`prefix` sends a prompt where its beginning is cached, unless waiting there takes longer. The others"
        " are LMDeploy's.",
    ),
]
_Serving = Annotated[
    Serving,
    _NODES("--serving-strategy", help="`DistServe`: prefill nodes compute prompts, decode nodes answers."),
]
_NodeNetwork = Annotated[
    _Texts,
    _NODES(
        metavar="CIDR",
        help="Nodes may be in these networks only. Default: this machine and private networks. May be given more"
        " than once.",
    ),
]
_NodeKey = Annotated[
    str | None,
    _NODES(
        metavar="KEY",
        envvar="JAN_SERVE_NODE_KEY",
        help="API key that the proxy presents to nodes. Clients' keys never go there.",
    ),
]
_HealthInterval = Annotated[
    float,
    _NODES(
        min=0.1,
        max=60,
        help="Time between two checks of a node. One that does not answer two in a row is lost, and its streams go"
        " on elsewhere.",
    ),
]
_NodeCa = Annotated[
    Path | None,
    _NODES(
        metavar="FILE",
        exists=True,
        dir_okay=False,
        help="Certificates (PEM) of authorities that https nodes may have. Default: the system's.",
    ),
]
_ApiKeys = Annotated[
    _Texts,
    _ACCESS(
        "--api-key",
        "--api-keys",
        metavar="KEY",
        envvar="JAN_SERVE_PROXY_API_KEYS",
        help="Key that clients must present. May be given more than once.",
    ),
]
_ManagementKey = Annotated[
    _Texts,
    _ACCESS(
        metavar="KEY",
        envvar="JAN_SERVE_MANAGEMENT_KEYS",
        help="Key for `/nodes/*`, which add and remove nodes. Default: the --node-key.",
    ),
]
_AllowedHost = Annotated[
    _Texts,
    _ACCESS(
        metavar="NAME",
        help="Name accepted in the Host header besides loopback names and the bound address. May be given more"
        " than once.",
    ),
]
_AllowedOrigin = Annotated[
    _Texts,
    _ACCESS(
        metavar="ORIGIN",
        help="Web origin that may call the proxy besides loopback ones. May be given more than once.",
    ),
]


def proxy(
    host: _Host = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", "--server-port", min=0, max=65535, help="TCP port. 0 picks a free one.")
    ] = 8000,
    node: Annotated[
        _Texts, _NODES(metavar="URL", help="A server that is always a node. May be given more than once.")
    ] = None,
    strategy: _Strategy = "prefix",
    serving: _Serving = "Hybrid",
    node_network: _NodeNetwork = None,
    node_key: _NodeKey = None,
    node_ca: _NodeCa = None,
    forget: Annotated[
        bool,
        _NODES("--forget", "--disable-cache-status", help="Neither read nor write the file of known nodes."),
    ] = False,
    fleet_file: Annotated[
        Path | None,
        _NODES(metavar="FILE", help="Where nodes are remembered. Default: `fleet.json` in the data folder."),
    ] = None,
    api_keys: _ApiKeys = None,
    management_key: _ManagementKey = None,
    no_auth: Annotated[bool, _ACCESS("--no-auth", help="Listen beyond loopback without a key.")] = False,
    allowed_host: _AllowedHost = None,
    allowed_origin: _AllowedOrigin = None,
    max_body_bytes: Annotated[
        int, typer.Option(min=1024, max=1 << 30, help="Maximum size of a request body.")
    ] = 32 << 20,
    drain_timeout_s: Annotated[
        float, typer.Option(min=0, max=3600, help="Time that running requests have after the signal to stop.")
    ] = 30.0,
    health_interval_s: _HealthInterval = 5.0,
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        typer.Option(help="Lowest severity to log.", case_sensitive=False),
    ] = "info",
    log_json: Annotated[bool, typer.Option("--log-json", help="Write log lines as JSON objects.")] = False,
    otel_endpoint: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar="JAN_SERVE_OTEL_ENDPOINT",
            help="Collector of OpenTelemetry that gets a span of each request, as the server's setting.",
        ),
    ] = None,
    dummy_prefill: Annotated[
        bool, _LMDEPLOY("--dummy-prefill", help="DistServe without a prefill, to measure decode nodes.")
    ] = False,
    migration_protocol: Annotated[
        Literal["RDMA", "NVLINK"],
        _LMDEPLOY(help="The protocol that LMDeploy's nodes use between them; nodes of jan-serve use TCP."),
    ] = "RDMA",
    link_type: Annotated[Literal["RoCE", "IB"] | None, _LMDEPLOY(help="Read, and changes nothing.")] = None,
    disable_gdr: Annotated[bool, _LMDEPLOY("--disable-gdr", help="Read, and changes nothing.")] = False,
) -> None:
    """One address for many servers: a request goes to the one that would answer first.

    Servers join with `jan-serve serve --proxy-url URL`.
    """
    output = Output()
    settings = ProxySettings(
        host=host,
        port=port,
        strategy=strategy,
        serving=serving,
        nodes=tuple(map(_node, node or ())),
        node_networks=tuple(map(_network, node_network or ())),
        api_keys=tuple(map(_key, api_keys or ())),
        management_keys=tuple(map(_key, management_key or ())),
        node_key=_key(node_key) if node_key else None,
        allowed_hosts=tuple(allowed_host or ()),
        allowed_origins=tuple(allowed_origin or ()),
        fleet_file=None if forget else (fleet_file or default_data_dir() / "fleet.json").absolute(),
        node_ca=node_ca,
        max_body_bytes=max_body_bytes,
        drain_timeout_s=drain_timeout_s,
        health_interval_s=health_interval_s,
        dummy_prefill=dummy_prefill,
        migration_protocol=_PROTOCOLS[migration_protocol],
        otel_endpoint=None if otel_endpoint is None else _collector(otel_endpoint),
    )
    if not is_loopback(host) and not settings.api_keys and not no_auth:
        raise SettingsError(
            f"host {host} can be reached from other machines, and no API key is set. Set one with --api-key (or"
            " JAN_SERVE_PROXY_API_KEYS), or pass --no-auth to serve everyone."
        )
    if link_type is not None or disable_gdr:
        output.note("--link-type and --disable-gdr change nothing here.")
    raise typer.Exit(_serve(settings, output, log_level, as_json=log_json))


def _serve(settings: ProxySettings, output: Output, log_level: str, *, as_json: bool) -> int:
    with ExitStack() as opened:
        with interrupts_end_at_once():
            from jan_serve.proxy.server import run  # slow

            sock = opened.enter_context(_listen(settings))
            configure_logging(log_level, as_json=as_json)
            _print_banner(output, settings, url_of(sock))
        # Before and after uvicorn has its handlers, the event loop makes an interrupt a cancellation.
        try:
            return run(settings, sock, output.warning)
        except HttpError as error:
            raise SettingsError(f"--node: {error.problem.message}") from None


def _listen(settings: ProxySettings) -> socket.socket:
    try:
        return listen(settings.host, settings.port)
    except AlreadyServing as running:
        raise CommandError(
            f"port {settings.port} is in use by {running.holder.description}",
            "Choose another port with --port, or any free one with --port 0.",
            WRONG_USE,
        ) from None


def _print_banner(output: Output, settings: ProxySettings, url: str) -> None:
    output.headline(f"jan-serve {__version__} proxy")
    output.pairs(
        [
            ("url", url),
            ("routing", f"{settings.strategy}, {settings.serving}"),
            ("nodes", ", ".join(settings.nodes) or "those that register"),
            ("access", _access(settings)),
        ]
    )
    for line in join_lines(settings, url):
        output.note(line)


def join_lines(settings: ProxySettings, url: str) -> list[str]:
    """How a server joins. url: of the proxy, for programs on this machine."""
    if is_everywhere(settings.host):
        url = f"http://{own_address()}:{urlsplit(url).port}"
    managed = bool(settings.management_keys)
    node_key = bool(settings.api_keys or managed or settings.node_key)
    lines = [join_line(url, proxy_key=managed, node_key=node_key)]
    if settings.api_keys and not managed and not settings.node_key:
        lines.append(
            "Servers join once this proxy has --node-key NODE_KEY, or a --management-key that they present."
        )
    elif node_key and not settings.node_key and not is_loopback(settings.host):
        lines.append("For servers on other machines, start this proxy with --node-key NODE_KEY too.")
    return lines


def _access(settings: ProxySettings) -> str:
    if settings.api_keys:
        return "with an API key"
    return "this machine only, no key" if is_loopback(settings.host) else "everyone, no key"


def _node(url: str) -> str:
    from jan_serve.proxy.upstream.node_address import BadUrl, parse_node_url

    try:
        return str(parse_node_url(url))
    except BadUrl as error:
        raise SettingsError(f"--node: url: {error}") from None


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError as error:
        raise SettingsError(f"--node-network: {error}") from None


def _collector(url: str) -> str:
    try:
        return check_url(url, "http://localhost:4318")
    except ValueError as error:
        raise SettingsError(f"--otel-endpoint: {error}") from None


def _key(text: str) -> str:
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise SettingsError("a key may hold printable ASCII characters without blanks only")
    return text
