"""`jan-serve proxy`: one address for many servers."""

from __future__ import annotations

import ipaddress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from jan_serve import __version__
from jan_serve.api.errors import HttpError
from jan_serve.cli.errors import WRONG_USE, CommandError
from jan_serve.cli.interrupts import interrupts_end_at_once
from jan_serve.cli.output import Output
from jan_serve.cli.server.listen import AlreadyServing, listen, url_of
from jan_serve.core.hosts import is_loopback
from jan_serve.errors import SettingsError
from jan_serve.logs.log_lines import configure_logging
from jan_serve.proxy.settings import ProxySettings
from jan_serve.store.paths import default_data_dir

if TYPE_CHECKING:
    from jan_serve.proxy.upstream.networks import Network


class RoutingStrategy(StrEnum):
    """How a node is chosen."""

    PREFIX = "prefix"
    MIN_EXPECTED_LATENCY = "min_expected_latency"
    MIN_OBSERVED_LATENCY = "min_observed_latency"
    RANDOM = "random"


class ServingStrategy(StrEnum):
    """Whether nodes do the same, or prefill and decode separately."""

    HYBRID = "Hybrid"
    DIST_SERVE = "DistServe"


class MigrationProtocol(StrEnum):
    """How LMDeploy's nodes move states. Those of jan-serve use TCP in any case."""

    RDMA = "RDMA"
    NVLINK = "NVLINK"


class LinkType(StrEnum):
    """LMDeploy's option."""

    ROCE = "RoCE"
    IB = "IB"


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


_NODES = "Nodes"
_ACCESS = "Access"
_LMDEPLOY = "LMDeploy's"
_PROTOCOLS: Final = {MigrationProtocol.RDMA: 2, MigrationProtocol.NVLINK: 3}


def proxy(
    host: Annotated[
        str, typer.Option("--host", "--server-name", help="Address to listen on. Any but loopback requires a key.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", "--server-port", min=0, max=65535, help="TCP port. 0 picks a free one.")
    ] = 8000,
    node: Annotated[
        list[str] | None,
        typer.Option("--node", metavar="URL", help="A server that is always a node. May be given more than once.",
                     rich_help_panel=_NODES),
    ] = None,
    strategy: Annotated[
        RoutingStrategy,
        typer.Option("--strategy", "--routing-strategy", help="`prefix` sends a prompt where its beginning is cached,"
                     " unless waiting there takes longer. The others are LMDeploy's.", rich_help_panel=_NODES),
    ] = RoutingStrategy.PREFIX,
    serving: Annotated[
        ServingStrategy,
        typer.Option("--serving-strategy", help="`DistServe`: prefill nodes compute prompts, decode nodes answers.",
                     rich_help_panel=_NODES),
    ] = ServingStrategy.HYBRID,
    node_network: Annotated[
        list[str] | None,
        typer.Option("--node-network", metavar="CIDR", help="Nodes may be in these networks only. Default: this"
                     " machine and private networks. May be given more than once.", rich_help_panel=_NODES),
    ] = None,
    node_key: Annotated[
        str | None,
        typer.Option("--node-key", metavar="KEY", envvar="JAN_SERVE_NODE_KEY", show_envvar=True,
                     help="API key that the proxy presents to nodes. Clients' keys never go there.",
                     rich_help_panel=_NODES),
    ] = None,
    node_ca: Annotated[
        Path | None,
        typer.Option("--node-ca", metavar="FILE", exists=True, dir_okay=False,
                     help="Certificates (PEM) of authorities that https nodes may have. Default: the system's.",
                     rich_help_panel=_NODES),
    ] = None,
    forget: Annotated[
        bool,
        typer.Option("--forget", "--disable-cache-status", help="Neither read nor write the file of known nodes.",
                     rich_help_panel=_NODES),
    ] = False,
    fleet_file: Annotated[
        Path | None,
        typer.Option("--fleet-file", metavar="FILE", help="Where nodes are remembered. Default: `fleet.json` in the"
                     " data folder.", rich_help_panel=_NODES),
    ] = None,
    api_keys: Annotated[
        list[str] | None,
        typer.Option("--api-key", "--api-keys", metavar="KEY", envvar="JAN_SERVE_PROXY_API_KEYS", show_envvar=True,
                     help="Key that clients must present. May be given more than once.", rich_help_panel=_ACCESS),
    ] = None,
    management_keys: Annotated[
        list[str] | None,
        typer.Option("--management-key", metavar="KEY", envvar="JAN_SERVE_MANAGEMENT_KEYS", show_envvar=True,
                     help="Key for `/nodes/*`, which add and remove nodes. Default: the clients' keys.",
                     rich_help_panel=_ACCESS),
    ] = None,
    no_auth: Annotated[
        bool, typer.Option("--no-auth", help="Listen beyond loopback without a key.", rich_help_panel=_ACCESS)
    ] = False,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option("--allowed-host", metavar="NAME", help="Name accepted in the Host header besides loopback names"
                     " and the bound address. May be given more than once.", rich_help_panel=_ACCESS),
    ] = None,
    allowed_origin: Annotated[
        list[str] | None,
        typer.Option("--allowed-origin", metavar="ORIGIN", help="Web origin that may call the proxy besides loopback"
                     " ones. May be given more than once.", rich_help_panel=_ACCESS),
    ] = None,
    max_body_bytes: Annotated[
        int, typer.Option("--max-body-bytes", min=1024, max=1 << 30, help="Maximum size of a request body.")
    ] = 32 << 20,
    drain_timeout_s: Annotated[
        float,
        typer.Option("--drain-timeout-s", min=0, max=3600, help="Time that running requests have after the signal to"
                     " stop."),
    ] = 30.0,
    log_level: Annotated[LogLevel, typer.Option("--log-level", help="Lowest severity to log.", case_sensitive=False)]
    = LogLevel.INFO,
    log_json: Annotated[bool, typer.Option("--log-json", help="Write log lines as JSON objects.")] = False,
    dummy_prefill: Annotated[
        bool, typer.Option("--dummy-prefill", help="DistServe without a prefill, to measure decode nodes.",
                           rich_help_panel=_LMDEPLOY)
    ] = False,
    migration_protocol: Annotated[
        MigrationProtocol,
        typer.Option("--migration-protocol", help="What LMDeploy's nodes are told; those of jan-serve use TCP.",
                     rich_help_panel=_LMDEPLOY),
    ] = MigrationProtocol.RDMA,
    link_type: Annotated[
        LinkType | None, typer.Option("--link-type", help="Read, and changes nothing.", rich_help_panel=_LMDEPLOY)
    ] = None,
    disable_gdr: Annotated[
        bool, typer.Option("--disable-gdr", help="Read, and changes nothing.", rich_help_panel=_LMDEPLOY)
    ] = False,
) -> None:  # fmt: skip
    """One address for many servers: a request goes to the one that would answer first.

    Servers join with `jan-serve serve --proxy-url URL`.
    """
    output = Output()
    settings = ProxySettings(
        host=host,
        port=port,
        strategy=strategy.value,
        serving=serving.value,
        nodes=tuple(node or ()),
        node_networks=tuple(map(_network, node_network or ())),
        api_keys=tuple(map(_key, api_keys or ())),
        management_keys=tuple(map(_key, management_keys or ())),
        node_key=_key(node_key) if node_key else None,
        allowed_hosts=tuple(allowed_host or ()),
        allowed_origins=tuple(allowed_origin or ()),
        fleet_file=None if forget else (fleet_file or default_data_dir() / "fleet.json").absolute(),
        node_ca=node_ca,
        max_body_bytes=max_body_bytes,
        drain_timeout_s=drain_timeout_s,
        dummy_prefill=dummy_prefill,
        migration_protocol=_PROTOCOLS[migration_protocol],
    )
    if not is_loopback(host) and not settings.api_keys and not no_auth:
        raise SettingsError(
            f"host {host} can be reached from other machines, and no API key is set. Set one with --api-key (or"
            " JAN_SERVE_PROXY_API_KEYS), or pass --no-auth to serve everyone."
        )
    if link_type is not None or disable_gdr:
        output.note("--link-type and --disable-gdr change nothing here.")
    raise typer.Exit(_serve(settings, output, log_level.value, as_json=log_json))


@interrupts_end_at_once()  # until uvicorn installs its handlers
def _serve(settings: ProxySettings, output: Output, log_level: str, *, as_json: bool) -> int:
    from jan_serve.proxy.server import run  # slow

    try:
        sock = listen(settings.host, settings.port)
    except AlreadyServing as running:
        raise CommandError(
            f"port {settings.port} is in use by {running.holder.description}",
            "Choose another port with --port, or any free one with --port 0.",
            WRONG_USE,
        ) from None
    with sock:
        configure_logging(log_level, as_json=as_json)
        url = url_of(sock)
        output.headline(f"jan-serve {__version__} proxy")
        output.pairs(
            [
                ("url", url),
                ("routing", f"{settings.strategy}, {settings.serving}"),
                ("nodes", ", ".join(settings.nodes) or "those that register"),
                ("access", _access(settings)),
            ]
        )
        output.note(f"On another machine: jan-serve serve --host 0.0.0.0 --proxy-url {url}")
        try:
            return run(settings, sock, output.warning)
        except HttpError as error:
            raise SettingsError(f"--node: {error.problem.message}") from None


def _access(settings: ProxySettings) -> str:
    if settings.api_keys:
        return "with an API key"
    return "this machine only, no key" if is_loopback(settings.host) else "everyone, no key"


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError as error:
        raise SettingsError(f"--node-network: {error}") from None


def _key(text: str) -> str:
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise SettingsError("a key may hold printable ASCII characters without blanks only")
    return text
