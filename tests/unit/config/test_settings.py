"""Where settings come from, which wins, and what is said about a wrong one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from jan_serve.config import (
    Settings,
    import_folders,
    load_settings,
    setting_options,
)
from jan_serve.config.settings_loader import MASK
from jan_serve.errors import SettingsError


@pytest.fixture
def config_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty configuration file, used by default."""
    path = tmp_path / "config.toml"
    path.write_text("")
    monkeypatch.setenv("JAN_SERVE_CONFIG", str(path))
    return path


def test_defaults(tmp_path: Path, config_file: Path) -> None:
    loaded = load_settings()
    settings = loaded.settings
    assert (settings.host, settings.port, settings.is_loopback) == ("127.0.0.1", 1337, True)
    assert settings.models_dir == settings.data_dir / "models"
    assert loaded.origins == {}
    assert loaded.config_file == config_file
    assert loaded.config_file_read


def test_flags_win_over_environment_over_file(config_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config_file.write_text("# comment\nport = 1\nn_ctx = 4096\nlog_json = true\n")
    monkeypatch.setenv("JAN_SERVE_PORT", "2")
    monkeypatch.setenv("JAN_SERVE_PARALLEL", "3")
    loaded = load_settings({"port": "5", "threads": None})
    settings = loaded.settings
    assert (settings.port, settings.n_ctx, settings.parallel, settings.log_json) == (5, 4096, 3, True)
    assert settings.threads is None
    assert loaded.origins == {
        "port": "--port",
        "parallel": "JAN_SERVE_PARALLEL",
        "n_ctx": f"{config_file}:3",
        "log_json": f"{config_file}:4",
    }
    assert load_settings().settings.port == 2


def test_lists_and_secrets(config_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config_file.write_text('allowed_hosts = ["a.example", "b.example:8000"]\n')
    monkeypatch.setenv("JAN_SERVE_API_KEYS", "first-key, second-key")
    monkeypatch.setenv("JAN_SERVE_ALLOWED_ORIGINS", "https://a.example,tauri://localhost")
    loaded = load_settings()
    assert [key.get_secret_value() for key in loaded.settings.api_keys] == ["first-key", "second-key"]
    assert loaded.settings.allowed_hosts == ("a.example", "b.example:8000")
    assert loaded.settings.allowed_origins == ("https://a.example", "tauri://localhost")
    shown = dict((name, value) for name, value, _ in loaded.rows())
    assert shown["api_keys"] == f"{MASK}, {MASK}"
    assert "first-key" not in repr(loaded.settings)
    flags = load_settings({"api_keys": ["flag,with,commas"]})
    assert [key.get_secret_value() for key in flags.settings.api_keys] == ["flag,with,commas"]


def test_one_key_in_the_singular(config_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAN_SERVE_API_KEY", "only,one")
    loaded = load_settings()
    assert [key.get_secret_value() for key in loaded.settings.api_keys] == ["only,one"]
    assert loaded.origins["api_keys"] == "JAN_SERVE_API_KEY"
    assert loaded.warnings == ()


def test_folders(config_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config_file.write_text('data_dir = "here"\n')
    assert load_settings().settings.data_dir == tmp_path / "here"
    assert load_settings().settings.models_dir == tmp_path / "here" / "models"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    settings = load_settings({"models_dir": "~/m", "data_dir": "there"}).settings
    assert settings.models_dir == tmp_path / "home" / "m"
    assert settings.data_dir == tmp_path / "there"


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
    ({"n_gpu_layers": "some"}, "'auto' or 'all'"),
    ({"n_gpu_layers": "-3"}, "greater than or equal to 0"),
    ({"flash_attn": "maybe"}, "'auto', 'on' or 'off'"),
    ({"type_k": "q3"}, "'f32', 'f16'"),
    ({"n_ctx": 1}, "greater than or equal to 64"),
    ({"sse_ping_s": 0}, "greater than 0"),
    ({"drain_timeout_s": float("nan")}, "must be less than or equal to 3600"),
    ({"log_level": "loud"}, "'debug', 'info', 'warning' or 'error'"),
    ({"allowed_origins": ["example.org"]}, "is not an origin"),
    ({"allowed_origins": ["http://user@example.org"]}, "is not an origin"),
    ({"also_listen": [0]}, "greater than or equal to 1"),
    ({"open_networks": ["192.168.1.1/24"]}, "is not a network such as"),
    ({"open_networks": ["0.0.0.0/0"]}, "is every address; --no-auth serves everyone"),
    ({"open_routes": ["/"]}, "is not a route such as"),
    ({"allowed_hosts": ["http://a"]}, "is not a host name"),
]


@pytest.mark.parametrize(("flags", "message"), WRONG_FLAGS)
def test_wrong_flags_are_named(config_file: Path, flags: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        load_settings(flags)


@pytest.mark.parametrize("key", ["", " ", "a b", "schlüssel", "tab\t", "new\nline"])
def test_unusable_keys_are_refused_and_never_shown(config_file: Path, key: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings({"api_keys": ["good-secret", key]})
    assert "good-secret" not in caught.value.message
    assert len(key.strip()) < 3 or key not in caught.value.message


def test_every_mistake_is_reported(config_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config_file.write_text("\nthreads = 0\n")
    monkeypatch.setenv("JAN_SERVE_N_CTX", "many")
    with pytest.raises(SettingsError) as caught:
        load_settings({"port": 70000})
    lines = caught.value.message.splitlines()
    assert len(lines) == 3
    assert any(line.startswith(f"{config_file}:2: threads") for line in lines)
    assert any(line.startswith("JAN_SERVE_N_CTX: n_ctx") for line in lines)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("port = = 1", r"config\.toml: .*line 1"),
        ("prot = 1", r"config\.toml:1: there is no setting 'prot'; did you mean 'port'"),
        ("prot = 1\nhots = 2", r"config\.toml:2: there is no setting 'hots'; did you mean 'host'"),
        ("\n[server]\nport = 1", r"config\.toml:2: there is no setting 'server'"),
        ('a."b" = 1', r"config\.toml:1: there is no setting 'a'"),
        ("port = true\nhost = 3", r"config\.toml:2: host must be a valid string"),
        ("# x\n'api_keys' = ['a b']", r"config\.toml:2: api_keys"),
        ("api_keys = 3", r"config\.toml:1: api_keys"),
        ("port = [1]", r"config\.toml:1: port must be a valid integer"),
    ],
)
def test_mistakes_in_the_file_have_their_line(config_file: Path, text: str, message: str) -> None:
    config_file.write_text(text)
    with pytest.raises(SettingsError, match=message):
        load_settings()


def test_files_that_cannot_be_read(
    config_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config_file.write_bytes(b"port = 1 # \xff")
    with pytest.raises(SettingsError, match="not UTF-8 at byte 11"):
        load_settings()
    with pytest.raises(SettingsError, match="there is no configuration file"):
        load_settings(config_file=tmp_path / "absent.toml")
    with pytest.raises(SettingsError, match="cannot read"):
        load_settings(config_file=tmp_path)
    monkeypatch.setenv("JAN_SERVE_CONFIG", str(tmp_path / "absent.toml"))
    with pytest.raises(SettingsError, match="there is no configuration file"):
        load_settings()


def test_the_default_file_need_not_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "jan_serve.config.settings_loader.default_config_file", lambda: tmp_path / "absent.toml"
    )
    loaded = load_settings()
    assert not loaded.config_file_read
    assert loaded.settings.port == 1337


def test_unknown_variables_are_mentioned(config_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAN_SERVE_PROT", "1")
    monkeypatch.setenv("JAN_SERVE_PORT_1337_TCP_ADDR", "10.0.0.1")
    warnings = load_settings().warnings
    assert any("JAN_SERVE_PROT is set" in warning and "'port'" in warning for warning in warnings)
    assert len(warnings) == 2
    monkeypatch.setenv("JAN_SERVE_PORT", "tcp://10.0.0.1:1337")
    with pytest.raises(SettingsError, match="enableServiceLinks"):
        load_settings()


def test_empty_variables_are_not_set_but_an_empty_key_is_a_mistake(
    config_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAN_SERVE_N_CTX", "")
    assert load_settings().settings.n_ctx is None
    for name in ("JAN_SERVE_API_KEYS", "JAN_SERVE_API_KEY"):
        with monkeypatch.context() as context:
            context.setenv(name, " ")
            with pytest.raises(SettingsError, match=f"{name} is set but empty"):
                load_settings()


@pytest.mark.skipif(os.name != "posix", reason="file modes")
def test_a_key_file_that_others_can_read_is_mentioned(config_file: Path) -> None:
    config_file.write_text('api_keys = ["k"]\n')
    config_file.chmod(0o644)
    assert any("can be read by other users" in warning for warning in load_settings().warnings)
    config_file.chmod(0o600)
    assert load_settings().warnings == ()


def test_settings_are_frozen(config_file: Path) -> None:
    settings = load_settings().settings
    with pytest.raises(ValidationError, match="frozen"):
        settings.port = 3  # pyright: ignore[reportAttributeAccessIssue]


def test_settings_ignore_the_environment_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only load_settings merges: tests and wiring that build Settings get what they say."""
    monkeypatch.setenv("JAN_SERVE_PORT", "7")
    assert Settings.model_validate({}).port == 1337


def test_every_field_is_documented() -> None:
    options = setting_options()
    assert {option.field for option in options} == set(Settings.model_fields)
    assert len({option.flag for option in options}) == len(options)
    for option in options:
        assert option.description.endswith("."), option.field
        assert option.flag.startswith("--")
        assert option.variable == f"JAN_SERVE_{option.field.upper()}"


def test_hub_settings_and_the_variables_of_the_hub(
    config_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load_settings().settings.hf_endpoint == "https://huggingface.co"
    assert load_settings().settings.hf_token is None
    monkeypatch.setenv("HF_ENDPOINT", "https://mirror.example/hub/")
    monkeypatch.setenv("HF_TOKEN", "hf_secret\n")
    loaded = load_settings()
    assert loaded.settings.hf_endpoint == "https://mirror.example/hub"
    assert loaded.settings.hf_token is not None
    assert loaded.settings.hf_token.get_secret_value() == "hf_secret"
    assert (loaded.origins["hf_endpoint"], loaded.origins["hf_token"]) == ("HF_ENDPOINT", "HF_TOKEN")
    assert dict((name, value) for name, value, _ in loaded.rows())["hf_token"] == MASK
    assert "hf_secret" not in repr(loaded.settings)
    monkeypatch.setenv("JAN_SERVE_HF_TOKEN", "ours")
    loaded = load_settings()
    assert loaded.settings.hf_token is not None and loaded.settings.hf_token.get_secret_value() == "ours"
    assert loaded.origins["hf_token"] == "JAN_SERVE_HF_TOKEN"
    monkeypatch.setenv("JAN_SERVE_HF_TOKEN", "hf secret-canary")
    with pytest.raises(SettingsError) as caught:
        load_settings()
    assert "canary" not in caught.value.message


@pytest.mark.parametrize(
    "endpoint",
    ["huggingface.co", "ftp://x", "https://user:secret@x", "https://", "https://x/?a=b", "https://x\n"],
)
def test_endpoints_that_are_none(config_file: Path, endpoint: str) -> None:
    with pytest.raises(SettingsError, match="--hf-endpoint"):
        load_settings({"hf_endpoint": endpoint})


def test_where_other_programs_keep_models(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "o"))
    monkeypatch.setenv("JAN_DATA_FOLDER", str(tmp_path / "j"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "h"))
    found = import_folders()
    assert (found.ollama, found.jan, found.hf_cache) == (
        (tmp_path / "o",),
        (tmp_path / "j",),
        (tmp_path / "h" / "hub",),
    )
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "c"))
    assert import_folders().hf_cache == (tmp_path / "c",)
    for name in ("OLLAMA_MODELS", "JAN_DATA_FOLDER", "HF_HOME", "HF_HUB_CACHE"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    assert import_folders().hf_cache == (tmp_path / "x" / "huggingface" / "hub",)
    assert import_folders().ollama[0] == Path.home() / ".ollama" / "models"
