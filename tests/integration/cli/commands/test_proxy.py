"""`jan-serve proxy` and `jan-serve nodes`: what they refuse, and what they show."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from jan_serve.cli.main import main
from tests.support.kept_logging import keep_logging as keep_logging
from tests.support.proxied import proxying


def test_lmdeploys_names_start_it_and_nodes_shows_why_one_gets_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [
        "--server-name",
        "127.0.0.1",
        "--routing-strategy",
        "random",
        "--disable-gdr",
        "--node",
        "http://127.0.0.1:1",
    ]
    with proxying(tmp_path, *flags, "--disable-cache-status", "--serving-strategy", "Hybrid") as proxy:
        assert main(["nodes", "--url", proxy.url(), "--json"]) == 0
        shown = json.loads(capsys.readouterr().out)
        assert shown["strategy"] == "random"
        assert "refused" in shown["nodes"][0]["reason"]
        assert main(["nodes", "--url", proxy.url()]) == 0
        shown = capsys.readouterr()
        assert "127.0.0.1:1" in shown.out
        assert "no prompt measured" in shown.err


def test_a_proxy_without_nodes_says_how_one_joins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with proxying(tmp_path) as proxy:
        assert main(["nodes", "--url", proxy.url()]) == 0
    assert f"On this machine: jan-serve serve --proxy-url {proxy.url()}\n" in capsys.readouterr().err


def test_the_proxy_starts_without_what_models_need() -> None:
    heavy = "fastapi", "pydantic", "numpy"
    code = f"import sys, jan_serve.proxy.server; print(*sys.modules.keys() & {set(heavy)})"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == ""
