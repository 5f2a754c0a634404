"""A replica runs when the proxy sends requests to its server, and knows when the server is ill."""

from __future__ import annotations

import pytest

from jan_serve.cluster.cluster_file import ClusterFile
from jan_serve.cluster.replica import NoWay, listening_host, server_settings


def test_the_server_listens_only_where_the_proxy_is() -> None:
    assert listening_host("http://localhost:8000") == "127.0.0.1"
    assert listening_host("http://127.0.0.2:8000") == "127.0.0.1"
    with pytest.raises(NoWay, match="no way to the proxy"):
        listening_host("http://no.such.host.invalid:8000")


def test_settings_of_the_cluster_go_over_those_of_the_file() -> None:
    file = ClusterFile("http://10.0.0.2:8000", "KEY", serve={"n_ctx": 4096})
    assert server_settings(file, "10.0.0.3") == {
        "n_ctx": 4096,
        "host": "10.0.0.3",
        "proxy_url": "http://10.0.0.2:8000",
        "proxy_key": "KEY",
        "drain_timeout_s": 600.0,
    }
