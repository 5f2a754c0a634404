"""What `jan-serve proxy` was started with. Times in seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from jan_serve.fleet.attempts import PATIENCE_S
from jan_serve.fleet.strategies import StrategyName
from jan_serve.proxy.upstream.node_address import Network

Serving = Literal["Hybrid", "DistServe"]


class ProxySettings(msgspec.Struct, frozen=True, kw_only=True):
    """api_keys: of clients. management_keys: for adding and removing nodes; the nodes' if empty. node_key: sent to
    nodes. nodes: URLs of nodes that are always there. node_networks: where nodes may be; empty means private networks.
    fleet_file: remembers nodes over restarts; None forgets them. migration_protocol: LMDeploy's number, which nodes of
    jan-serve do not need. patience_s: how long a node may give no sign of life, at least, before a request leaves it
    for another one. short_prompt_tokens: prompts with less to compute are not moved between nodes.
    otel_endpoint: collector of OpenTelemetry.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    strategy: StrategyName = "prefix"
    serving: Serving = "Hybrid"
    nodes: tuple[str, ...] = ()
    node_networks: tuple[Network, ...] = ()
    api_keys: tuple[str, ...] = ()
    management_keys: tuple[str, ...] = ()
    node_key: str | None = None
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    fleet_file: Path | None = None
    node_ca: Path | None = None
    max_body_bytes: int = 32 * 1024 * 1024
    max_json_depth: int = 100
    connect_timeout_s: float = 3.0
    first_byte_timeout_s: float = 600.0
    patience_s: float = PATIENCE_S
    read_timeout_s: float = 120.0
    write_timeout_s: float = 60.0
    drain_timeout_s: float = 30.0
    health_interval_s: float = 5.0
    migration_protocol: int = 2
    dummy_prefill: bool = False
    short_prompt_tokens: float = 512.0
    otel_endpoint: str | None = None
