"""Bodies of `/nodes/*`, as LMDeploy's proxy reads and writes them. Pure."""

from __future__ import annotations

import math
from typing import Any, Final, cast

import msgspec

from jan_serve.fleet.node import Node, Role
from jan_serve.proxy.discovery import MAX_MODELS, is_model_name
from jan_serve.proxy.problems import wrong_field
from jan_serve.proxy.request_facts import MAX_MODEL
from jan_serve.proxy.upstream.node_url import BadUrl, NodeUrl, parse_node_url

MAX_SPEED: Final = 1e9


class NodeRequest(msgspec.Struct, frozen=True):
    """models: empty if the node is to be asked. speed: None if unknown."""

    url: NodeUrl
    role: Role
    models: tuple[str, ...]
    speed: float | None


def read_url(content: Any, caller: str | None) -> NodeUrl:
    """The `url` of a body. Raises HttpError (422)."""
    if not isinstance(content, dict):
        raise wrong_field("url", "the body must be a JSON object with a url")
    text = cast(dict[str, Any], content).get("url")
    if not isinstance(text, str):
        raise wrong_field("url", "must be a text" if "url" in content else "is missing")
    return url_of_text(text, caller)


def url_of_text(text: str, caller: str | None) -> NodeUrl:
    try:
        return parse_node_url(text, caller)
    except BadUrl as error:
        raise wrong_field("url", str(error)) from None


def read_node(content: Any, caller: str | None) -> NodeRequest:
    """The body of `/nodes/add`. `unfinished` and `latency` are ignored: the proxy counts itself. Raises HttpError."""
    url = read_url(content, caller)
    status = cast(dict[str, Any], content).get("status")
    if status is None:
        return NodeRequest(url, Role.HYBRID, (), None)
    if not isinstance(status, dict):
        raise wrong_field("status", "must be an object or null")
    fields = cast(dict[str, Any], status)
    return NodeRequest(
        url, _role(fields.get("role", 1)), _models(fields.get("models")), _speed(fields.get("speed"))
    )


def _role(value: object) -> Role:
    if isinstance(value, bool) or value not in (1, 2, 3):
        raise wrong_field("status.role", "must be 1 (hybrid), 2 (prefill) or 3 (decode)")
    return Role(cast(int, value))


def _models(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or len(cast(list[object], value)) > MAX_MODELS:
        raise wrong_field("status.models", f"must be a list of at most {MAX_MODELS} names")
    names = cast(list[object], value)
    if not all(is_model_name(name) for name in names):
        raise wrong_field(
            "status.models", f"each name must be a text of 1 to {MAX_MODEL} printable characters"
        )
    return tuple(dict.fromkeys(cast(list[str], names)))


def _speed(value: object) -> float | None:
    """LMDeploy's documentation uses -1 for a speed that is not known."""
    if value is None or (value == -1 and not isinstance(value, bool)):
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MAX_SPEED:
        raise wrong_field(
            "status.speed", f"must be a number above 0, at most {MAX_SPEED:g}; -1 and null are unknown"
        )
    return float(value)


def status_body(node: Node) -> dict[str, Any]:
    """A node's entry in `/nodes/status`."""
    speed = node.speed
    return {
        "role": int(node.role),
        "models": list(node.models),
        "unfinished": node.in_flight,
        "latency": [round(seconds, 6) for seconds in node.latencies],
        "speed": int(speed) if speed is not None and math.floor(speed) == speed else speed,
    }
