"""Adds a server to a proxy, ours or LMDeploy's, and takes it off."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final, cast

import msgspec

from jan_serve import __version__

NODE_HEADER: Final = "x-jan-serve-node"
"""Our proxy names the node that it added. LMDeploy's does not."""
_CALL_S: Final = 15.0
_WITHDRAW_S: Final = 2.0
_ROLES: Final = {"hybrid": 1, "prefill": 2, "decode": 3}
_ADDED: Final = "Added successfully"


class Membership(msgspec.Struct, frozen=True):
    """url: of this server, as the proxy calls it. key: of the proxy. own_key: of this server. speed: if it is known."""

    proxy_url: str
    url: str
    role: str
    key: str | None = None
    speed: float | None = None
    own_key: str | None = None

    def body(self, models: Sequence[str] = ()) -> dict[str, object]:
        """LMDeploy's `Node`. Without models, the proxy asks for them."""
        status: dict[str, object] = {"role": _ROLES[self.role]}
        if models:
            status["models"] = list(models)
        if self.speed is not None:
            status["speed"] = int(self.speed) if self.speed == int(self.speed) else self.speed
        return {"url": self.url, "status": status}


class Registration:
    """What the proxy knows of this server."""

    def __init__(self) -> None:
        self._is_lmdeploys = False

    async def renew(self, membership: Membership) -> str | None:
        """Be a node of the proxy. Why it failed, if it did."""
        if self._is_lmdeploys:
            return await self._renew_at_lmdeploys(membership)
        answer = await _call(membership, "/nodes/add", membership.body())
        if answer.status == HTTPStatus.OK and not answer.is_ours:
            self._is_lmdeploys = True
            return await self._renew_at_lmdeploys(membership)
        return answer.problem

    async def _renew_at_lmdeploys(self, membership: Membership) -> str | None:
        """Add this server if it is not listed: adding it again sets the counters of its running requests to 0.

        It names its models, because that proxy has no key to ask for them.
        """
        own = await _get(f"{membership.url}/v1/models", membership.own_key)
        models = _names(own.content)
        if not models:
            return f"this server does not list its models at {membership.url}: {own.text[:500]}"
        nodes = (await _get(f"{membership.proxy_url}/nodes/status", membership.key)).content
        if isinstance(nodes, dict):
            node = cast(dict[str, Any], nodes).get(membership.url)
            if isinstance(node, dict) and cast(dict[str, Any], node).get("models") == models:
                return None
        answer = await _call(membership, "/nodes/add", membership.body(models))
        self._is_lmdeploys = not answer.is_ours
        return answer.problem

    async def withdraw(self, membership: Membership) -> str | None:
        """Be no node any more. Why it failed, if it did."""
        answer = await _call(membership, "/nodes/remove", membership.body(), _WITHDRAW_S)
        return None if answer.status == HTTPStatus.OK else answer.text[:500]


class _Answer(msgspec.Struct, frozen=True):
    """status: 0 if there is none; then the text is the reason."""

    status: int
    text: str
    is_ours: bool = False

    @property
    def problem(self) -> str | None:
        """LMDeploy's proxy answers 200 to failures, too, with another text."""
        return None if self.status == HTTPStatus.OK and _ADDED in self.text else self.text[:500]

    @property
    def content(self) -> Any:
        """None unless the answer is good and JSON."""
        try:
            return msgspec.json.decode(self.text) if self.status == HTTPStatus.OK else None
        except (msgspec.DecodeError, RecursionError):
            return None


def _names(listed: Any) -> list[str]:
    """Of our own answer of `/v1/models`; none if there is none."""
    data = cast(dict[str, Any], listed).get("data") if isinstance(listed, dict) else None
    entries = cast(list[Any], data) if isinstance(data, list) else []
    return [entry["id"] for entry in entries]


async def _get(url: str, key: str | None) -> _Answer:
    return await _exchange("GET", url, key, None, _CALL_S)


async def _call(membership: Membership, path: str, body: object, limit_s: float = _CALL_S) -> _Answer:
    return await _exchange("POST", f"{membership.proxy_url}{path}", membership.key, body, limit_s)


async def _exchange(method: str, url: str, key: str | None, body: object, limit_s: float) -> _Answer:
    import httpx2  # only servers with a proxy need it

    headers = {"user-agent": f"jan-serve/{__version__}"}
    if key is not None:
        headers["authorization"] = f"Bearer {key}"
    try:
        async with httpx2.AsyncClient(
            timeout=limit_s,
            headers=headers,
            trust_env=False,
            # Loading the certificates takes longer than a request.
            verify=url.startswith("https:"),
        ) as client:
            answer = await client.request(method, url, json=body)
            return _Answer(answer.status_code, answer.text, NODE_HEADER in answer.headers)
    except (httpx2.HTTPError, OSError) as error:
        return _Answer(0, str(error) or type(error).__name__)
