"""`jan-serve nodes`: the nodes of a running proxy."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer
from pydantic import SecretStr

from jan_serve.cli.client.server_client import ServerClient
from jan_serve.cli.joining import join_line
from jan_serve.cli.options import JsonOption
from jan_serve.cli.output import Output
from jan_serve.config.server_url import ServerAddress, checked_url

_DEFAULT: Final = "http://127.0.0.1:8000"


def nodes(
    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            metavar="URL",
            envvar="JAN_SERVE_PROXY_URL",
            help=f"Address of the proxy. Default: {_DEFAULT}.",
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            "--key",
            metavar="KEY",
            envvar="JAN_SERVE_MANAGEMENT_KEYS",
            help="Management key, if the proxy has one.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the nodes of a proxy: state, models, load, cache hits, and why one gets no requests."""
    output = Output()
    secret = SecretStr(key.split(",")[0].split()[0]) if key and key.strip(", ") else None
    address = ServerAddress(checked_url(url or _DEFAULT, "--url"), "--url", secret, "--key")
    with ServerClient(address, "proxy") as client:
        content = client.get("/extras/nodes")
    if as_json:
        output.json(content)
        return
    found: list[dict[str, Any]] = content["nodes"]
    if found:
        print_nodes(found, output)
    else:
        line = join_line(address.url, proxy_key=False, node_key=secret is not None)
        output.note(f"No node. {line}")
    rate = content["hit_rate"]
    cached = "no prompt measured" if rate is None else f"{_share(rate)} of the prompts cached"
    output.note(f"{address.url}: {content['serving']}, {content['strategy']}, {cached}")


def print_nodes(nodes: list[dict[str, Any]], output: Output) -> None:
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
    return (
        node["name"] + role,
        state,
        _models(node["models"]),
        f"{node['open_requests']} open{others}, {node['requests']} sent{failed}",
        _share(node["hit_rate"]),
        _speed(node["prefill_tokens_per_s"]),
    )


def _models(names: list[str]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"


def _speed(tokens_per_s: float | None) -> str:
    return "" if tokens_per_s is None else f"{tokens_per_s:.0f} tokens/s"


def _share(rate: float | None) -> str:
    return "nothing measured" if rate is None else f"{rate:.0%}"
