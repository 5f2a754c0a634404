"""An upgrade that is killed at any moment, or rolled back, leaves models and settings usable."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import pytest

from jan_serve.store import index
from jan_serve.store.index import FileRecord, ModelIndex, ModelRecord, Source
from tests.support.deadline import deadline
from tests.support.processes import wait_until

pytestmark = pytest.mark.integration

OLD = "# mine\ntcp_port = 8080\n" + "".join(f"# comment {number}\n" for number in range(200))

# The later jan-serve: it migrates and goes back, over and over, until it is killed.
_MIGRATE = """
import pathlib, sys
from jan_serve.config import config_file
def step(content):
    if "tcp_port" in content:
        content["port"] = content.pop("tcp_port")
config_file.CONFIG_STEPS = {1: step}
path = pathlib.Path(sys.argv[1])
old = path.read_bytes()
print("begin", flush=True)
while True:
    config_file.migrate(path)
    config_file.write_atomically(path, old)
"""


def test_a_migration_that_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(OLD)
    seen: set[str] = set()
    for number in range(10):
        with subprocess.Popen(
            [sys.executable, "-P", "-c", _MIGRATE, str(path)], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            with deadline(process):
                assert process.stdout.readline() == "begin\n"
            # A different moment each time: after so many of the changes that are seen in the folder.
            for _ in range(1 + number):
                before = tmp_path.stat().st_mtime_ns
                wait_until(lambda before=before: tmp_path.stat().st_mtime_ns != before)
            process.kill()
        values = tomllib.loads(path.read_text())
        assert values in ({"tcp_port": 8080}, {"port": 8080, "config_version": 2})
        seen.update(values)
        path.write_text(OLD)
    assert seen
    assert tomllib.loads((tmp_path / "config.toml.v1").read_text()) == {"tcp_port": 8080}


def record(name: str) -> ModelRecord:
    """A model of the index."""
    file = FileRecord(path=f"{name}.gguf", size_bytes=5)
    return ModelRecord(name=name, source=Source(kind="hub"), files=(file,), modified_ns=1, added_at=1.0)


def rename_models(content: MutableMapping[str, Any]) -> None:
    """From 1 to 2: a later jan-serve's idea of titles."""
    content["aliases"] = [*content.get("aliases", []), f"{content['name']}-two"]


def test_records_of_both_versions_live_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = ModelIndex(tmp_path)
    old.put(record("a"))
    old.put(record("b"))
    files = {path: path.read_bytes() for path in tmp_path.rglob("*.json")}

    with monkeypatch.context() as later:
        later.setattr(index.RECORDS, "steps", {1: rename_models})
        new = ModelIndex(tmp_path)
        found = new.records()
        assert {name: found[name].aliases for name in found} == {"a": ("a-two",), "b": ("b-two",)}
        # Reading rewrites nothing.
        assert {path: path.read_bytes() for path in tmp_path.rglob("*.json")} == files
        new.put(found["b"])
        assert ModelIndex(tmp_path).records() == found

    # Back to the earlier one: it knows what it wrote, leaves the other alone, and can write it anew.
    back = ModelIndex(tmp_path)
    assert list(back.records()) == ["a"]
    assert len(list(tmp_path.rglob("*.json"))) == 2
    back.put(record("b"))
    assert sorted(back.records()) == ["a", "b"]


@pytest.mark.parametrize("content", ["[]", "{}", '{"version": "x"}', '{"version": 1}', '{"name": 1}'])
def test_a_damaged_record_hides_only_itself(
    content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = ModelIndex(tmp_path)
    models.put(record("a"))
    folder = next(tmp_path.rglob("*.json")).parent
    (folder / "0.json").write_text(content)
    assert list(models.records()) == ["a"]
    monkeypatch.setattr(index.RECORDS, "steps", {1: rename_models})
    assert list(ModelIndex(tmp_path).records()) == ["a"]
