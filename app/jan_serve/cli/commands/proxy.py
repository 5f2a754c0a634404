"""`jan-serve proxy`: one address for many servers."""

from __future__ import annotations

import ipaddress
import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import typer

from jan_serve import __version__
from jan_serve.cli.errors import WRONG_USE, CommandError
from jan_serve.cli.interrupts import interrupts_end_at_once
from jan_serve.cli.joining import join_line, own_address
from jan_serve.cli.output import Output
from jan_serve.cli.proxy_options import (
    AllowedHostOption,
    AllowedOriginOption,
    ApiKeysOption,
    DisableGdrOption,
    DrainTimeoutSOption,
    DummyPrefillOption,
    FleetFileOption,
    ForgetOption,
    HostOption,
    LinkTypeOption,
    LogJsonOption,
    LogLevel,
    LogLevelOption,
    ManagementKeysOption,
    MaxBodyBytesOption,
    MigrationProtocol,
    MigrationProtocolOption,
    NoAuthOption,
    NodeCaOption,
    NodeKeyOption,
    NodeNetworkOption,
    NodeOption,
    PortOption,
    RoutingStrategy,
    ServingOption,
    ServingStrategy,
    StrategyOption,
)
from jan_serve.cli.server.listen import AlreadyServing, listen, url_of
from jan_serve.core.hosts import is_loopback
from jan_serve.errors import SettingsError
from jan_serve.http.errors import HttpError
from jan_serve.logs.log_lines import configure_logging
from jan_serve.proxy.settings import ProxySettings
from jan_serve.store.paths import default_data_dir

if TYPE_CHECKING:
    from jan_serve.proxy.upstream.node_address import Network


_PROTOCOLS: Final = {MigrationProtocol.RDMA: 2, MigrationProtocol.NVLINK: 3}


def proxy(
    host: HostOption = "127.0.0.1",
    port: PortOption = 8000,
    node: NodeOption = None,
    strategy: StrategyOption = RoutingStrategy.PREFIX,
    serving: ServingOption = ServingStrategy.HYBRID,
    node_network: NodeNetworkOption = None,
    node_key: NodeKeyOption = None,
    node_ca: NodeCaOption = None,
    forget: ForgetOption = False,
    fleet_file: FleetFileOption = None,
    api_keys: ApiKeysOption = None,
    management_keys: ManagementKeysOption = None,
    no_auth: NoAuthOption = False,
    allowed_host: AllowedHostOption = None,
    allowed_origin: AllowedOriginOption = None,
    max_body_bytes: MaxBodyBytesOption = 32 << 20,
    drain_timeout_s: DrainTimeoutSOption = 30.0,
    log_level: LogLevelOption = LogLevel.INFO,
    log_json: LogJsonOption = False,
    dummy_prefill: DummyPrefillOption = False,
    migration_protocol: MigrationProtocolOption = MigrationProtocol.RDMA,
    link_type: LinkTypeOption = None,
    disable_gdr: DisableGdrOption = False,
) -> None:
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
    if settings.host in ("0.0.0.0", "::"):
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


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError as error:
        raise SettingsError(f"--node-network: {error}") from None


def _key(text: str) -> str:
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise SettingsError("a key may hold printable ASCII characters without blanks only")
    return text
