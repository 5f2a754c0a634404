"""What a node is: the models that it lists, and how its health answers are to be read."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from typing import Any, Final, cast

import msgspec

from jan_serve.fleet.node import NodeState
from jan_serve.proxy.request_facts import MAX_MODEL
from jan_serve.proxy.upstream.connection import Failure, NodeFailure
from jan_serve.proxy.upstream.node_address import NodeUrl
from jan_serve.proxy.upstream.node_client import Headers, NodeClient

DISCOVERY_S: Final = 10.0
MAX_MODELS: Final = 10_000
MAX_LIST_BYTES: Final = 8 << 20
_MAX_PID: Final = 1 << 32
_MAX_UPTIME_S: Final = 1e12
_MAX_OPEN: Final = 1 << 20
_ASLEEP: Final = frozenset({"asleep", "sleeping"})


def key_headers(key: str | None) -> Headers:
    return () if key is None else ((b"authorization", b"Bearer " + key.encode()),)


class ListedModels(msgspec.Struct, frozen=True):
    """aliases: further names of the models."""

    names: tuple[str, ...]
    aliases: tuple[str, ...] = ()


async def models_of(client: NodeClient, url: NodeUrl, key: str | None) -> ListedModels:
    """What the node's `/v1/models` says. Raises NodeFailure."""
    status, content = await client.fetch_json(
        url, "GET", "/v1/models", key_headers(key), limit_s=DISCOVERY_S, max_bytes=MAX_LIST_BYTES
    )
    if status != HTTPStatus.OK:
        hint = ": it needs a key (--node-key)" if status == HTTPStatus.UNAUTHORIZED else ""
        raise NodeFailure(Failure.PROTOCOL, f"answers /v1/models with status {status}{hint}")
    return _listed(content)


def _listed(content: Any) -> ListedModels:
    data = cast(dict[str, Any], content).get("data") if isinstance(content, dict) else None
    if not isinstance(data, list):
        raise NodeFailure(Failure.PROTOCOL, "answers /v1/models with something that is not a list of models")
    entries = cast(list[object], data)
    if len(entries) > MAX_MODELS:
        raise NodeFailure(Failure.PROTOCOL, f"lists more than {MAX_MODELS} models")
    names = [cast(dict[str, Any], entry).get("id") if isinstance(entry, dict) else None for entry in entries]
    if not all(is_model_name(name) for name in names):
        raise NodeFailure(
            Failure.PROTOCOL, f"lists a model whose id is not a text of 1 to {MAX_MODEL} printable characters"
        )
    aliases = (alias for entry in entries for alias in _aliases(cast(dict[str, Any], entry)))
    return ListedModels(
        tuple(dict.fromkeys(cast(Sequence[str], names))),
        tuple(dict.fromkeys(itertools.islice(aliases, MAX_MODELS))),
    )


def _aliases(entry: dict[str, Any]) -> Iterator[str]:
    """Ours list them; anything else there is another server's business."""
    found = entry.get("aliases")
    return filter(is_model_name, cast(list[Any], found)) if isinstance(found, list) else iter(())


def is_model_name(name: object) -> bool:
    return isinstance(name, str) and 0 < len(name) <= MAX_MODEL and name.isprintable()


class Condition(msgspec.Struct, frozen=True):
    """A node's answer to `/health`. pid, uptime_s, open_requests: None if it does not say."""

    state: NodeState
    reason: str
    pid: int | None = None
    uptime_s: float | None = None
    open_requests: int | None = None


def _count(value: object, limit: int) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < limit else None


def _seconds(value: object) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _MAX_UPTIME_S:
        return float(value)
    return None


def condition_of(status: int, content: Any) -> Condition:
    """Read `/health` of jan-serve, LMDeploy or any other server. Raises NodeFailure for one that fails."""
    fields = cast(dict[str, Any], content) if isinstance(content, dict) else {}
    words = [word for name in ("state", "status") if isinstance(word := fields.get(name), str)]
    start = (
        _count(fields.get("pid"), _MAX_PID),
        _seconds(fields.get("uptime_s")),
        _count(fields.get("open_requests"), _MAX_OPEN),
    )
    if not _ASLEEP.isdisjoint(words):
        return Condition(NodeState.SLEEPING, "until it is woken", *start)
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        word = words[0][:40] if words else "busy"
        return Condition(NodeState.DRAINING, f"it says that it is {word}", *start)
    if status == HTTPStatus.UNAUTHORIZED:
        raise NodeFailure(Failure.PROTOCOL, "refuses the proxy's key for /health (--node-key)")
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        raise NodeFailure(Failure.PROTOCOL, f"answers /health with status {status}")
    return Condition(NodeState.HEALTHY, "", *start)  # a 404, too: not every server has this route
