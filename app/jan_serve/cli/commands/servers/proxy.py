"""`jan-serve proxy`: one address for many servers."""

from __future__ import annotations

import ipaddress
import socket
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal
from urllib.parse import urlsplit

import typer

from jan_serve import __version__
from jan_serve.cli.arguments import option, parameters_of, taking
from jan_serve.cli.commands.servers.nodes import join_line, own_address
from jan_serve.cli.errors import WrongUse
from jan_serve.cli.interrupts import interrupts_end_at_once
from jan_serve.cli.output import output
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
_Texts = list[str] | None


_NODES = partial(option, rich_help_panel="Nodes")
_ACCESS = partial(option, rich_help_panel="Access")
_LMDEPLOY = partial(option, rich_help_panel="LMDeploy's")


class _Options:
    """Most are fields of ProxySettings."""

    host: Annotated[
        str, option("--host --server-name", "Address to listen on. Any but loopback requires a key.")
    ] = "127.0.0.1"
    port: Annotated[
        int, option("--port --server-port", "TCP port. 0 picks a free one.", min=0, max=65535)
    ] = 8000
    nodes: Annotated[
        _Texts, _NODES("--node URL", "A server that is always a node. May be given more than once.")
    ] = None
    strategy: Annotated[
        StrategyName,
        _NODES(
            "--strategy --routing-strategy",
            "`prefix` sends a prompt where its beginning is cached, unless waiting there takes longer. The others"
            " are LMDeploy's.",
        ),
    ] = "prefix"
    serving: Annotated[
        Serving,
        _NODES("--serving-strategy", "`DistServe`: prefill nodes compute prompts, decode nodes answers."),
    ] = "Hybrid"
    node_networks: Annotated[
        _Texts,
        _NODES(
            "--node-network CIDR",
            "Nodes may be in these networks only. Default: this machine and private networks. May be given more"
            " than once.",
        ),
    ] = None
    node_key: Annotated[
        str | None,
        _NODES(
            "--node-key KEY",
            "API key that the proxy presents to nodes. Clients' keys never go there.",
            envvar="JAN_SERVE_NODE_KEY",
        ),
    ] = None
    node_ca: Annotated[
        Path | None,
        _NODES(
            "--node-ca FILE",
            "Certificates (PEM) of authorities that https nodes may have. Default: the system's.",
            exists=True,
            dir_okay=False,
        ),
    ] = None
    forget: Annotated[
        bool, _NODES("--forget --disable-cache-status", "Neither read nor write the file of known nodes.")
    ] = False
    fleet_file: Annotated[
        Path | None,
        _NODES("--fleet-file FILE", "Where nodes are remembered. Default: `fleet.json` in the data folder."),
    ] = None
    api_keys: Annotated[
        _Texts,
        _ACCESS(
            "--api-key --api-keys KEY",
            "Key that clients must present. May be given more than once.",
            envvar="JAN_SERVE_PROXY_API_KEYS",
        ),
    ] = None
    management_keys: Annotated[
        _Texts,
        _ACCESS(
            "--management-key KEY",
            "Key for `/nodes/*`, which add and remove nodes. Default: the --node-key.",
            envvar="JAN_SERVE_MANAGEMENT_KEYS",
        ),
    ] = None
    no_auth: Annotated[bool, _ACCESS("--no-auth", "Listen beyond loopback without a key.")] = False
    allowed_hosts: Annotated[
        _Texts,
        _ACCESS(
            "--allowed-host NAME",
            "Name accepted in the Host header besides loopback names and the bound address. May be given more"
            " than once.",
        ),
    ] = None
    allowed_origins: Annotated[
        _Texts,
        _ACCESS(
            "--allowed-origin ORIGIN",
            "Web origin that may call the proxy besides loopback ones. May be given more than once.",
        ),
    ] = None
    max_body_bytes: Annotated[
        int, option("--max-body-bytes", "Maximum size of a request body.", min=1024, max=1 << 30)
    ] = 32 << 20
    drain_timeout_s: Annotated[
        float,
        option(
            "--drain-timeout-s", "Time that running requests have after the signal to stop.", min=0, max=3600
        ),
    ] = 30.0
    health_interval_s: Annotated[
        float,
        _NODES(
            "--health-interval-s",
            "Time between two checks of a node. One that does not answer two in a row is lost, and its streams go"
            " on elsewhere.",
            min=0.1,
            max=60,
        ),
    ] = 5.0
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        option("--log-level", "Lowest severity to log.", case_sensitive=False),
    ] = "info"
    log_json: Annotated[bool, option("--log-json", "Write log lines as JSON objects.")] = False
    otel_endpoint: Annotated[
        str | None,
        option(
            "--otel-endpoint URL",
            "Collector of OpenTelemetry that gets a span of each request, as the server's setting.",
            envvar="JAN_SERVE_OTEL_ENDPOINT",
        ),
    ] = None
    dummy_prefill: Annotated[
        bool, _LMDEPLOY("--dummy-prefill", "DistServe without a prefill, to measure decode nodes.")
    ] = False
    migration_protocol: Annotated[
        Literal["RDMA", "NVLINK"],
        _LMDEPLOY(
            "--migration-protocol",
            "The protocol that LMDeploy's nodes use between them; nodes of jan-serve use TCP.",
        ),
    ] = "RDMA"
    link_type: Annotated[
        Literal["RoCE", "IB"] | None, _LMDEPLOY("--link-type", "Read, and changes nothing.")
    ] = None
    disable_gdr: Annotated[bool, _LMDEPLOY("--disable-gdr", "Read, and changes nothing.")] = False


def _proxy(no_auth: bool, forget: bool, log_level: str, log_json: bool, **given: Any) -> None:
    """One address for many servers: a request goes to the one that would answer first.

    Servers join with `jan-serve serve --proxy-url URL`.
    """
    changes_nothing = [given.pop(name) for name in ("link_type", "disable_gdr")]
    for name, read in _READERS.items():
        given[name] = tuple(map(read, given[name] or ()))
    given["fleet_file"] = (
        None if forget else (given["fleet_file"] or default_data_dir() / "fleet.json").absolute()
    )
    given["node_key"] = _key(given["node_key"]) if given["node_key"] else None
    given["migration_protocol"] = _PROTOCOLS[given["migration_protocol"]]
    if given["otel_endpoint"] is not None:
        given["otel_endpoint"] = _collector(given["otel_endpoint"])
    settings = ProxySettings(**given)
    if not is_loopback(settings.host) and not settings.api_keys and not no_auth:
        raise SettingsError(
            f"host {settings.host} can be reached from other machines, and no API key is set. Set one with --api-key"
            " (or JAN_SERVE_PROXY_API_KEYS), or pass --no-auth to serve everyone."
        )
    if any(changes_nothing):
        output.note("--link-type and --disable-gdr change nothing here.")
    raise typer.Exit(_serve(settings, log_level, as_json=log_json))


proxy = taking(_proxy, parameters_of(_Options))


def _serve(settings: ProxySettings, log_level: str, *, as_json: bool) -> int:
    with ExitStack() as opened:
        with interrupts_end_at_once():
            from jan_serve.proxy.server import run  # slow

            sock = opened.enter_context(_listen(settings))
            configure_logging(log_level, as_json=as_json)
            _print_banner(settings, url_of(sock))
        # Before and after uvicorn has its handlers, the event loop makes an interrupt a cancellation.
        try:
            return run(settings, sock, output.warning)
        except HttpError as error:
            raise SettingsError(f"--node: {error.problem.message}") from None


def _listen(settings: ProxySettings) -> socket.socket:
    try:
        return listen(settings.host, settings.port)
    except AlreadyServing as running:
        raise WrongUse(
            f"port {settings.port} is in use by {running.holder.description}",
            "Choose another port with --port, or any free one with --port 0.",
        ) from None


def _print_banner(settings: ProxySettings, url: str) -> None:
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


_READERS: Final = {
    "nodes": _node,
    "node_networks": _network,
    "api_keys": _key,
    "management_keys": _key,
    "allowed_hosts": str,
    "allowed_origins": str,
}
"""Of each text of a repeated option."""
