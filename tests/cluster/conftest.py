"""One Ray cluster of two machines, and one proxy, for all tests here."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator
from importlib.util import find_spec
from pathlib import Path

import pytest

from jan_serve.cluster.ray_serve import VARIABLES
from tests.cluster.cluster import TestedCluster
from tests.support.deadline import deadline
from tests.support.servers.proxied import proxying

_MACHINES_S = 120.0


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Without Ray there is nothing to collect: `make test-cluster` installs it."""
    return True if collection_path.suffix == ".py" and find_spec("ray") is None else None


@pytest.fixture(scope="session")
def variables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """For Ray, its machines and the commands: a token, and folders of their own."""
    home = tmp_path_factory.mktemp("home")
    config = home / "config.toml"
    config.write_text(f'data_dir = "{home / "data"}"\nn_ctx = 1024\n', encoding="utf-8")
    own = {
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "XDG_DATA_HOME": str(home),
        "JAN_SERVE_CONFIG": str(config),
    }
    # Several starts at once on few cores take longer than Ray waits.
    return {**os.environ, **VARIABLES, **own, "HOME": str(home), "RAY_raylet_start_wait_time_s": "120"}


@pytest.fixture(scope="session")
def machines(variables: dict[str, str]) -> Generator[subprocess.Popen[str]]:
    # Ray's sockets have their full path in a name of 107 bytes at most.
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
    command = [sys.executable, "-P", "-m", "tests.cluster.ray_machines", "2", folder]
    root = Path(__file__).parents[2]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=variables | {"PYTHONPATH": str(root)},
    )
    try:
        yield process
    finally:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.close()
        process.wait(60)
        process.stdout.close()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def cluster(
    machines: subprocess.Popen[str], variables: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Generator[TestedCluster]:
    assert machines.stdout is not None
    with deadline(machines, _MACHINES_S):
        address = machines.stdout.readline().strip()
    assert address, "the machines did not start"
    folder = tmp_path_factory.mktemp("cluster")
    with proxying(folder) as proxy:
        yield TestedCluster(folder, proxy.url(), address, variables, machines)
