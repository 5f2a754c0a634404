"""LMDeploy's own proxy, and the registration of its api_server: `run_lmdeploy_servers VERSION proxy PORT` and
`run_lmdeploy_servers VERSION register URL PROXY`. The product's environment has what they need.

Not collected by pytest: see test_lmdeploy_servers.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
from types import SimpleNamespace
from typing import Any

from tests.clients.lmdeploy_parts import use_lmdeploy

MODEL = "jan-tiny"


def proxy(port: str) -> None:
    module: Any = importlib.import_module("lmdeploy.serve.proxy.proxy")
    module.proxy(server_name="127.0.0.1", server_port=int(port), disable_cache_status=True, log_level="DEBUG")


def register(url: str, proxy_url: str) -> None:
    """What an api_server at the URL does at its start."""
    server: Any = importlib.import_module("lmdeploy.serve.openai.api_server")
    config = SimpleNamespace(adapters=None)
    engine = SimpleNamespace(engine=None, model_name=MODEL, backend_config=config, start_loop=_start)
    if hasattr(server, "register_to_proxy"):
        context = SimpleNamespace(
            proxy_url=proxy_url, api_server_url=url, async_engine=engine, engine_config=config
        )
        server.register_to_proxy(context)
        return
    variables = server.VariableInterface
    variables.async_engine, variables.proxy_url, variables.api_server_url = engine, proxy_url, url
    asyncio.run(server.startup_event())


def _start(loop: asyncio.AbstractEventLoop, use_async_api: bool) -> None:
    """There is no engine."""


if __name__ == "__main__":
    use_lmdeploy(sys.argv[1])
    {"proxy": proxy, "register": register}[sys.argv[2]](*sys.argv[3:])
