"""Which keys may do what at the proxy: clients ask models, managers add and remove nodes."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from starlette.types import ASGIApp, Scope

from jan_serve.http.errors import Envelopes, HttpError, http_problem
from jan_serve.http.guards.auth import KeyGuard
from jan_serve.http.guards.guard import Guard
from jan_serve.proxy.settings import ProxySettings

_MANAGEMENT: Final = ("/nodes/", "/distserve/", "/extras/nodes")
_READ_ONLY: Final = frozenset({"/nodes/status", "/extras/nodes"})


class ManagementGuard(Guard):
    """A node gets the prompts of all clients, and the key of the nodes. So a client's key adds none: a manager is who
    has a management key or, without one, the key of the nodes, with which every node can be used anyway. A proxy
    without any key is managed by everybody who reaches it."""

    def __init__(self, app: ASGIApp, *, envelopes: Envelopes, settings: ProxySettings) -> None:
        super().__init__(app, envelopes)
        clients = settings.api_keys
        managers = settings.management_keys or ((settings.node_key,) if settings.node_key else ())
        readers = settings.management_keys or (clients and (*clients, *managers))
        self._clients = KeyGuard(app, envelopes=envelopes, keys=clients)
        self._readers = KeyGuard(app, envelopes=envelopes, keys=readers)
        self._managers = (
            KeyGuard(app, envelopes=envelopes, keys=managers) if managers or not clients else None
        )

    def check(self, scope: Scope) -> None:
        """Raises 401, or 403 for a client's key."""
        path: str = scope["path"]
        if not path.startswith(_MANAGEMENT):
            self._clients.check(scope)
        elif path in _READ_ONLY:
            self._readers.check(scope)
        else:
            self._check_manager(scope)

    def _check_manager(self, scope: Scope) -> None:
        try:
            if self._managers is not None:
                self._managers.check(scope)
                return
        except HttpError:
            if not self._clients.has_keys:
                raise
        self._clients.check(scope)
        raise http_problem(
            HTTPStatus.FORBIDDEN,
            "forbidden_key",
            "The key of a client neither adds nor removes nodes. Present the key of the nodes (the proxy's --node-key),"
            " or start the proxy with a --management-key and present that.",
        )
