"""Options of `jan-serve proxy`, with LMDeploy's names beside ours."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


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

HostOption = Annotated[
    str,
    typer.Option("--host", "--server-name", help="Address to listen on. Any but loopback requires a key."),
]
PortOption = Annotated[
    int, typer.Option("--port", "--server-port", min=0, max=65535, help="TCP port. 0 picks a free one.")
]
NodeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--node",
        metavar="URL",
        help="A server that is always a node. May be given more than once.",
        rich_help_panel=_NODES,
    ),
]
StrategyOption = Annotated[
    RoutingStrategy,
    typer.Option(
        "--strategy",
        "--routing-strategy",
        help="`prefix` sends a prompt where its beginning is cached, unless waiting there takes longer. The others are"
        " LMDeploy's.",
        rich_help_panel=_NODES,
    ),
]
ServingOption = Annotated[
    ServingStrategy,
    typer.Option(
        "--serving-strategy",
        help="`DistServe`: prefill nodes compute prompts, decode nodes answers.",
        rich_help_panel=_NODES,
    ),
]
NodeNetworkOption = Annotated[
    list[str] | None,
    typer.Option(
        "--node-network",
        metavar="CIDR",
        help="Nodes may be in these networks only. Default: this machine and private networks. May be given more than"
        " once.",
        rich_help_panel=_NODES,
    ),
]
NodeKeyOption = Annotated[
    str | None,
    typer.Option(
        "--node-key",
        metavar="KEY",
        envvar="JAN_SERVE_NODE_KEY",
        show_envvar=True,
        help="API key that the proxy presents to nodes. Clients' keys never go there.",
        rich_help_panel=_NODES,
    ),
]
NodeCaOption = Annotated[
    Path | None,
    typer.Option(
        "--node-ca",
        metavar="FILE",
        exists=True,
        dir_okay=False,
        help="Certificates (PEM) of authorities that https nodes may have. Default: the system's.",
        rich_help_panel=_NODES,
    ),
]
ForgetOption = Annotated[
    bool,
    typer.Option(
        "--forget",
        "--disable-cache-status",
        help="Neither read nor write the file of known nodes.",
        rich_help_panel=_NODES,
    ),
]
FleetFileOption = Annotated[
    Path | None,
    typer.Option(
        "--fleet-file",
        metavar="FILE",
        help="Where nodes are remembered. Default: `fleet.json` in the data folder.",
        rich_help_panel=_NODES,
    ),
]
ApiKeysOption = Annotated[
    list[str] | None,
    typer.Option(
        "--api-key",
        "--api-keys",
        metavar="KEY",
        envvar="JAN_SERVE_PROXY_API_KEYS",
        show_envvar=True,
        help="Key that clients must present. May be given more than once.",
        rich_help_panel=_ACCESS,
    ),
]
ManagementKeysOption = Annotated[
    list[str] | None,
    typer.Option(
        "--management-key",
        metavar="KEY",
        envvar="JAN_SERVE_MANAGEMENT_KEYS",
        show_envvar=True,
        help="Key for `/nodes/*`, which add and remove nodes. Default: the --node-key.",
        rich_help_panel=_ACCESS,
    ),
]
NoAuthOption = Annotated[
    bool, typer.Option("--no-auth", help="Listen beyond loopback without a key.", rich_help_panel=_ACCESS)
]
AllowedHostOption = Annotated[
    list[str] | None,
    typer.Option(
        "--allowed-host",
        metavar="NAME",
        help="Name accepted in the Host header besides loopback names and the bound address. May be given more than"
        " once.",
        rich_help_panel=_ACCESS,
    ),
]
AllowedOriginOption = Annotated[
    list[str] | None,
    typer.Option(
        "--allowed-origin",
        metavar="ORIGIN",
        help="Web origin that may call the proxy besides loopback ones. May be given more than once.",
        rich_help_panel=_ACCESS,
    ),
]
MaxBodyBytesOption = Annotated[
    int, typer.Option("--max-body-bytes", min=1024, max=1 << 30, help="Maximum size of a request body.")
]
DrainTimeoutSOption = Annotated[
    float,
    typer.Option(
        "--drain-timeout-s", min=0, max=3600, help="Time that running requests have after the signal to stop."
    ),
]
LogLevelOption = Annotated[
    LogLevel, typer.Option("--log-level", help="Lowest severity to log.", case_sensitive=False)
]
LogJsonOption = Annotated[bool, typer.Option("--log-json", help="Write log lines as JSON objects.")]
DummyPrefillOption = Annotated[
    bool,
    typer.Option(
        "--dummy-prefill",
        help="DistServe without a prefill, to measure decode nodes.",
        rich_help_panel=_LMDEPLOY,
    ),
]
MigrationProtocolOption = Annotated[
    MigrationProtocol,
    typer.Option(
        "--migration-protocol",
        help="The protocol that LMDeploy's nodes use between them; nodes of jan-serve use TCP.",
        rich_help_panel=_LMDEPLOY,
    ),
]
LinkTypeOption = Annotated[
    LinkType | None, typer.Option("--link-type", help="Read, and changes nothing.", rich_help_panel=_LMDEPLOY)
]
DisableGdrOption = Annotated[
    bool, typer.Option("--disable-gdr", help="Read, and changes nothing.", rich_help_panel=_LMDEPLOY)
]
