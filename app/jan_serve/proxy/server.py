"""Runs the proxy on a listening socket until a signal, then drains."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from jan_serve.http.draining_server import DrainingServer, server_config
from jan_serve.proxy.app import Proxy
from jan_serve.proxy.settings import ProxySettings


class ProxyServer(DrainingServer):
    """Running requests may finish; nodes are left alone."""

    async def finish(self, drain_s: float) -> None:
        try:
            async with asyncio.timeout(drain_s):
                await self._lifecycle.wait_idle()
        except TimeoutError:
            self._lifecycle.end()


def proxy_config(app: ASGIApp) -> uvicorn.Config:
    """The address of a caller decides what the URL of a node may be, so that only the connection tells it."""
    return server_config(app, believes_forwarded=False)


def run(settings: ProxySettings, sock: socket.socket, warn: Callable[[str], None]) -> int:
    """Serve on `sock`, which already listens. Blocks until the proxy has stopped. Returns the exit status.

    warn: shows a message to the user. Raises SettingsError, StoreError, HttpError.
    """

    async def serve() -> int:
        proxy = Proxy(settings)
        warning = proxy.open()
        if warning is not None:
            warn(warning)
        config = proxy_config(proxy.app)
        server = ProxyServer(config, proxy.lifecycle, settings.drain_timeout_s)
        try:
            await server.serve(sockets=[sock])
        finally:
            await proxy.close()
        return 0 if server.started else 1

    unused: Any = None  # only the configuration of its loop is needed
    with asyncio.Runner(loop_factory=proxy_config(unused).get_loop_factory()) as runner:
        return runner.run(serve())
