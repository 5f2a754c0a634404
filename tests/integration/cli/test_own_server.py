"""`jan-serve own-server`: its address is the first line, and it ends with its standard input."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.deadline import deadline
from tests.support.managed import add_model
from tests.support.processes import wait_until

pytestmark = pytest.mark.integration


@contextmanager
def own_server(folder: Path, *flags: str) -> Generator[subprocess.Popen[str]]:
    """One whose configuration has another host, and a default model that cannot be loaded."""
    add_model(folder, "empty")
    config = folder / "config.toml"
    config.write_text(
        'data_dir = "data"\nhost = "0.0.0.0"\nport = 1\nmodel = "empty.gguf"\n', encoding="utf-8"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAN_SERVE_")}
    with (
        subprocess.Popen(
            [sys.executable, "-P", "-m", "jan_serve", "own-server", "--config", str(config), *flags],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            cwd=folder,
            text=True,
        ) as process,
        deadline(process, 120),
    ):
        yield process


@pytest.mark.parametrize(("flags", "models"), [((), ["empty"]), (("--no-default",), [])])
def test_it_serves_on_a_local_port_until_its_input_ends(
    tmp_path: Path, flags: tuple[str, ...], models: list[str]
) -> None:
    with own_server(tmp_path, *flags) as process:
        assert process.stdin is not None and process.stdout is not None
        url = process.stdout.readline().strip()
        assert url.startswith("http://127.0.0.1:")
        wait_until(lambda: models_at(url) == models, 60)
        process.stdin.close()
        assert process.stdout.read() == ""
        assert process.wait() == 0


def models_at(url: str) -> list[str]:
    """Those that are in memory, or could not be loaded."""
    with urllib.request.urlopen(f"{url}/health", timeout=60) as answer:
        return [model["name"] for model in json.load(answer)["models"]]
