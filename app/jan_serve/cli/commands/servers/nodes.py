"""`jan-serve nodes`: the servers of a running proxy, and the command with which one more joins."""

from __future__ import annotations

import socket
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from pydantic import SecretStr

from jan_serve.cli.arguments import JsonOption, option
from jan_serve.cli.client.server_client import ServerClient
from jan_serve.cli.output import output
from jan_serve.config.settings_loader import ServerAddress, checked_url
from jan_serve.core.hosts import is_loopback

_DEFAULT: Final = "http://127.0.0.1:8000"
_ELSEWHERE: Final = "http://192.0.2.1:9"
"""An address of documentation: no packet goes there."""


def join_line(url: str, *, proxy_key: bool, node_key: bool) -> str:
    """url: of the proxy. proxy_key: servers that join present a management key. node_key: they have the proxy's key of
    nodes."""
    auth = "--api-key NODE_KEY " if node_key else ""
    key = " --proxy-key PROXY_KEY" if proxy_key else ""
    if is_loopback(urlsplit(url).hostname or ""):
        return f"On this machine: jan-serve serve {auth}--proxy-url {url}{key}"
    return f"On another machine: jan-serve serve --host 0.0.0.0 {auth or '--no-auth '}--proxy-url {url}{key}"


def own_address() -> str:
    """The address from which this machine reaches others; its name without a network."""
    from jan_serve.membership.member import address_towards  # only a proxy on every address needs it

    return address_towards(_ELSEWHERE) or socket.gethostname()


def nodes(
    url: Annotated[
        str | None,
        option("--url URL", f"Address of the proxy. Default: {_DEFAULT}.", envvar="JAN_SERVE_PROXY_URL"),
    ] = None,
    key: Annotated[
        str | None,
        option("--key KEY", "Management key, if the proxy has one.", envvar="JAN_SERVE_MANAGEMENT_KEYS"),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the nodes of a proxy: state, models, load, cache hits, and why one gets no requests."""
    secret = SecretStr(key.split(",")[0].split()[0]) if key and key.strip(", ") else None
    address = ServerAddress(checked_url(url or _DEFAULT, "--url"), "--url", secret, "--key")
    with ServerClient(address, "proxy") as client:
        content = client.get("/extras/nodes")
    if as_json:
        output.json(content)
        return
    found: list[dict[str, Any]] = content["nodes"]
    if found:
        print_nodes(found)
    else:
        line = join_line(address.url, proxy_key=False, node_key=secret is not None)
        output.note(f"No node. {line}")
    rate = content["hit_rate"]
    cached = "no prompt measured" if rate is None else f"{_share(rate)} of the prompts cached"
    output.note(f"{address.url}: {content['serving']}, {content['strategy']}, {cached}")


def print_nodes(nodes: list[dict[str, Any]]) -> None:
    """Print the table. nodes: those of /extras/nodes."""
    output.table(
        ("node", "state", "models", "requests", "cached", "speed"),
        [_row(node) for node in nodes],
        whole=("models",),
        optional=("speed", "cached", "requests"),
    )


def _row(node: dict[str, Any]) -> tuple[str, ...]:
    state = node["state"] if node["routable"] else node["reason"]
    role = "" if node["role"] == "hybrid" else f" ({node['role']})"
    others = f" + {node['other_requests']} of others" if node["other_requests"] else ""
    failed = f", {node['failures']} failed" if node["failures"] else ""
    names: list[str] = node["models"]
    speed: float | None = node["prefill_tokens_per_s"]
    return (
        node["name"] + role,
        state,
        ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else ""),
        f"{node['open_requests']} open{others}, {node['requests']} sent{failed}",
        _share(node["hit_rate"]),
        "" if speed is None else f"{speed:.0f} tokens/s",
    )


def _share(rate: float | None) -> str:
    return "nothing measured" if rate is None else f"{rate:.0%}"
