"""Values that settings take, and what is said about a wrong one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from jan_serve.config import Settings, load_settings
from jan_serve.errors import SettingsError


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost", "LocalHost"])
def test_loopback_needs_no_key(config_file: Path, host: str) -> None:
    assert load_settings({"host": host}).settings.is_loopback


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "192.168.1.5", "example.org", "127.0.0.1.example.org", "fe80::1"]
)
def test_other_addresses_need_a_key_or_a_word(config_file: Path, host: str) -> None:
    with pytest.raises(SettingsError, match=r"--api-key .* --no-auth"):
        load_settings({"host": host})
    assert not load_settings({"host": host, "no_auth": True}).settings.is_loopback
    assert not load_settings({"host": host, "api_keys": ["k"]}).settings.is_loopback


WRONG_FLAGS: list[tuple[dict[str, Any], str]] = [
    ({"port": "x"}, r"^--port: port must be a valid integer.*\(it is 'x'\)"),
    ({"port": 65536}, r"^--port: port must be less than or equal to 65535 \(it is 65536\)"),
    ({"port": -1}, "greater than or equal to 0"),
    ({"host": ""}, "--host: host must have at least 1 character"),
    ({"host": "a b"}, "neither an IP address nor a host name"),
    ({"host": "http://x"}, "neither an IP address nor a host name"),
    ({"host": "localhost:8080"}, "takes no port: --port sets it"),
    ({"host": "[::1]:8080"}, "takes no port: --port sets it"),
    ({"host": "[::1]"}, "neither an IP address nor a host name"),
    ({"memory_budget": "1.5"}, "lacks a unit"),
    ({"rpc": ["host"]}, "'host' is not HOST:PORT"),
    ({"rpc": ["host:0"]}, "'host:0' is not HOST:PORT"),
    ({"rpc": ["a:1,b"]}, "'b' is not HOST:PORT"),
    ({"rpc": [",".join(17 * ["a:1"])]}, "17 machines; 16 at most"),
    ({"rpc": ["[::1]:50052"]}, "is an IPv6 address; llama.cpp reaches"),
    ({"n_gpu_layers": "some"}, "'auto' or 'all'"),
    ({"n_gpu_layers": "-3"}, "greater than or equal to 0"),
    ({"flash_attn": "maybe"}, "'auto', 'on' or 'off'"),
    ({"type_k": "q3"}, "'f32', 'f16'"),
    *(
        ({"flash_attn": "off", "type_v": kind}, f"--type-v: type_v must be .* flash_attn is off.*{kind}")
        for kind in ("q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")
    ),
    ({"n_ctx": 1}, "greater than or equal to 64"),
    ({"sse_ping_s": 0}, "greater than 0"),
    ({"drain_timeout_s": float("nan")}, "must be less than or equal to 3600"),
    ({"log_level": "loud"}, "'debug', 'info', 'warning' or 'error'"),
    ({"also_listen": [0]}, "greater than or equal to 1"),
    ({"allowed_hosts": ["http://a"]}, "is not a host name"),
]


@pytest.mark.parametrize(("flags", "message"), WRONG_FLAGS)
def test_wrong_flags_are_named(config_file: Path, flags: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        load_settings(flags)


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
def test_values_that_need_no_flash_attention(config_file: Path, kind: str) -> None:
    settings = load_settings({"flash_attn": "off", "type_v": kind, "type_k": "q8_0"}).settings
    assert (settings.type_v, settings.type_k) == (kind, "q8_0")
    assert load_settings({"type_v": "q8_0"}).settings.flash_attn == "auto"


@pytest.mark.parametrize("value", ["lots", "-1", -1, True, "8XB"])
def test_a_wrong_memory_budget_is_one_line(config_file: Path, value: Any) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings({"memory_budget": value})
    shown = f"(it is {value!r})"
    assert (
        caught.value.message
        == f"--memory-budget: memory_budget must be auto, off, or a size such as 8GB {shown}"
    )


@pytest.mark.parametrize(
    ("value", "found"), [("auto", "auto"), ("off", "off"), ("8GB", 8 * 10**9), ("0", 0), (7, 7)]
)
def test_memory_budgets(config_file: Path, value: Any, found: Any) -> None:
    assert load_settings({"memory_budget": value}).settings.memory_budget == found


def test_keys_beside_a_wrong_one_are_not_shown(config_file: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings({"api_keys": ["good-secret", "bad secret"]})
    assert "secret" not in caught.value.message


@pytest.mark.parametrize("words", [["a:1,b:2", "c:3"], ["a:1", "b:2, c:3"], ["a:1", "b:2", "c:3"]])
def test_peers_come_with_commas_or_one_by_one(config_file: Path, words: list[str]) -> None:
    assert load_settings({"rpc": words}).settings.rpc == ("a:1", "b:2", "c:3")


def test_settings_are_frozen(config_file: Path) -> None:
    settings = load_settings().settings
    with pytest.raises(ValidationError, match="frozen"):
        settings.port = 3  # pyright: ignore[reportAttributeAccessIssue]


def test_settings_ignore_the_environment_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only load_settings merges: tests and wiring that build Settings get what they say."""
    monkeypatch.setenv("JAN_SERVE_PORT", "7")
    assert Settings.model_validate({}).port == 1337


def test_the_hub_is_an_address(config_file: Path) -> None:
    with pytest.raises(SettingsError, match=r"--hf-endpoint.* must be an address such as"):
        load_settings({"hf_endpoint": "huggingface.co"})


def test_files_and_folders_are_in_the_data_folder(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    assert settings.models_dir == tmp_path / "models"
    assert settings.grammars_dir == tmp_path / "grammars"
    assert settings.log_file == tmp_path / "logs" / "server.log"
    assert settings.mcp_file == tmp_path / "mcp.json"
