"""What a cluster file may say."""

from __future__ import annotations

from pathlib import Path

import pytest

from jan_serve.cluster.cluster_file import Replicas, read_cluster_file
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
