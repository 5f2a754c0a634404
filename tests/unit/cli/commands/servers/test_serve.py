"""The banner of a server that starts."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jan_serve.cli.commands.servers import serve
from jan_serve.cli.output import Output
from jan_serve.config import Settings
from jan_serve.store.index import DefaultModel
from tests.unit.cli.conftest import Run

Banner = Callable[..., dict[str, str]]


@pytest.fixture
def banner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Banner:
    """The banner's rows for these settings."""

    def rows(**settings: Any) -> dict[str, str]:
        found: dict[str, str] = {}

        def pairs(self: Output, pairs: Any) -> None:
            found.update(pairs)

        monkeypatch.setattr(Output, "pairs", pairs)
        made = Settings(data_dir=tmp_path, **settings)
        with socket.create_server(("127.0.0.1", 0)) as sock:
            serve.print_banner(made, DefaultModel(None, "there is no file"), sock)
        return found

    return rows


@pytest.mark.parametrize(
    ("settings", "cpu_only", "device"),
    [
        ({}, True, "cpu"),
        ({"n_gpu_layers": 5}, True, "cpu"),
        ({}, False, "best available, the layers that fit"),
        ({"n_gpu_layers": "all"}, False, "best available, all layers"),
        ({"device": "CUDA0", "n_gpu_layers": 5}, False, "CUDA0, 5 layers"),
        ({"device": "cpu"}, False, "cpu"),
        ({"n_gpu_layers": 0}, False, "best available"),
    ],
)
def test_the_device(
    banner: Banner, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], cpu_only: bool, device: str
) -> None:
    monkeypatch.setattr(serve, "is_cpu_only", lambda: cpu_only)
    assert banner(**settings)["device"] == device


@pytest.mark.parametrize(
    ("settings", "access"),
    [
        ({}, "this machine only, no key"),
        ({"host": "0.0.0.0", "no_auth": True}, "everyone, no key"),
        ({"host": "0.0.0.0", "api_keys": ["k"]}, "with an API key"),
    ],
)
def test_who_may_use_it(banner: Banner, settings: dict[str, Any], access: str) -> None:
    assert banner(**settings)["access"] == access


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"", "has only 0 bytes"), (b"hi", "has only 2 bytes"), (b"PK\3\4" * 9, "not with GGUF")],
)
def test_a_configured_model_that_is_no_model_stops_the_start(
    own_settings: Path, run: Run, tmp_path: Path, content: bytes, reason: str
) -> None:
    file = tmp_path / "bad.gguf"
    file.write_bytes(content)
    answer = run("serve", "--port", "0", "--model", str(file))
    assert answer.status == 2
    assert "error: --model: bad.gguf is not a valid GGUF file" in answer.err
    assert reason in answer.err


def test_a_configured_model_that_is_missing_is_explained(own_settings: Path, run: Run) -> None:
    own_settings.write_text('data_dir = "data"\nport = 0\nmodel = "absent-model"\n')
    answer = run("serve")
    assert answer.status == 2
    assert f"error: {own_settings}:3: The model `absent-model` does not exist" in answer.err
    assert "`jan-serve pull absent-model`" in answer.err
    assert "error: --model: The model `other`" in run("serve", "--model", "other").err
