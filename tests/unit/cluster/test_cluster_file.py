"""The cluster's file, and what machines hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from jan_serve.cluster.cluster_file import ClusterMachine, Replicas, capacity, read_cluster_file
from jan_serve.errors import SettingsError

WHOLE = """
proxy_url = "http://192.168.1.5:8000"
proxy_key = "HOUSEHOLD"
host = "192.168.1.5"
ray_port = 6380

[replicas]
min = 2
max = 8
gpus = 0.5
slots = 8
drain_s = 60

[serve]
model = "qwen3-8b"
api_keys = ["NODES"]
"""


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "cluster.toml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_a_whole_file(tmp_path: Path) -> None:
    read = read_cluster_file(written(tmp_path, WHOLE))
    assert read.replicas == Replicas(min=2, max=8, gpus=0.5, slots=8, drain_s=60)
    assert read.serve == {"model": "qwen3-8b", "api_keys": ["NODES"]}
    assert (read.proxy_key, read.ray_port, read.ray_address) == ("HOUSEHOLD", 6380, None)


def test_the_proxy_alone_is_enough(tmp_path: Path) -> None:
    read = read_cluster_file(written(tmp_path, 'proxy_url = "http://a:1"'))
    assert (read.replicas.min, read.replicas.max, read.replicas.per_machine) == (1, 1, 1)


PROXY = 'proxy_url = "http://a:1"\n'
WRONG = [
    ("", "proxy_url"),
    ("proxy_url = 5", "proxy_url"),
    ("proxy_url = ", "end of document"),
    ("ray_port = " + "9" * 5_000, "digits"),
    ("serve.a = " + "[" * 5_000, "recursion"),
    (b"\xff", "utf-8"),
    (PROXY + "replica = 2", "replica"),
    (PROXY + "ray_port = 0", "ray_port"),
    (PROXY + "ray_port = 65536", "ray_port"),
    (PROXY + "replicas.min = 0", "replicas.min"),
    (PROXY + "replicas.max = 1001", "replicas.max"),
    (PROXY + "replicas.min = 2.5", "replicas.min"),
    (PROXY + "replicas.min = true", "replicas.min"),
    (PROXY + "replicas.min = 3", "more than replicas.max"),
    (PROXY + "replicas.per_machine = 101", "replicas.per_machine"),
    (PROXY + "replicas.cpus = -1", "replicas.cpus"),
    (PROXY + "replicas.gpus = nan", "replicas.gpus"),
    (PROXY + "replicas.drain_s = inf", "replicas.drain_s"),
    (PROXY + "replicas.surge_percent = 101", "replicas.surge_percent"),
    (PROXY + "replicas.number = 1", "number"),
    (PROXY + "serve.host = '0.0.0.0'", "serve.host"),
    (PROXY + "serve.proxy_url = 'http://b:1'", "serve.proxy_url"),
    (PROXY + "serve.drain_timeout_s = 5", "serve.drain_timeout_s"),
    (PROXY + "#" * (1 << 20), "larger than"),
]


@pytest.mark.parametrize(("text", "words"), WRONG)
def test_a_mistake_is_named(tmp_path: Path, text: str | bytes, words: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(SettingsError) as raised:
        read_cluster_file(path)
    assert str(path) in str(raised.value)
    assert words in str(raised.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="No such file"):
        read_cluster_file(tmp_path / "none.toml")


DESKTOP = ClusterMachine("a", "10.0.0.2", True, 16, 1)
RACK = ClusterMachine("b", "10.0.0.3", True, 64, 4)
DEAD = ClusterMachine("c", "10.0.0.4", False, 64, 4)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (Replicas(max=8), 2),
        (Replicas(max=8, per_machine=100, gpus=1), 5),
        (Replicas(max=8, per_machine=2, gpus=1), 3),
        (Replicas(max=8, per_machine=8, gpus=0.5), 10),
        (Replicas(max=8, cpus=32), 1),
        (Replicas(max=3, per_machine=3, cpus=0), 6),
        (Replicas(gpus=8), 0),
    ],
)
def test_the_scarcest_resource_decides(wanted: Replicas, expected: int) -> None:
    assert capacity(wanted, [DESKTOP, RACK, DEAD]) == expected
