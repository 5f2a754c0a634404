"""Settings are merged from their sources, each with its origin, and mistakes name them."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from jan_serve.config import load_settings, server_address
from jan_serve.config.model_settings import MASK
from jan_serve.errors import SettingsError


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


def test_every_mistake_is_reported(config_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config_file.write_text("\nthreads = 0\n")
    monkeypatch.setenv("JAN_SERVE_N_CTX", "many")
    with pytest.raises(SettingsError) as caught:
        load_settings({"port": 70000})
    lines = caught.value.message.splitlines()
    assert len(lines) == 3
    assert any(line.startswith(f"{config_file}:2: threads") for line in lines)
    assert any(line.startswith("JAN_SERVE_N_CTX: n_ctx") for line in lines)


def test_mistakes_of_all_kinds_come_in_the_order_of_the_file(
    config_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config_file.write_text(
        "threads = 0\nn_ctx = 4096\nprot = 1\n"
        "[models.a]\nparallel = 0\n[models.b]\nnctx = 1\n[models.c]\nparallel = 2\n"
    )
    monkeypatch.setenv("JAN_SERVE_LOG_LEVEL", "loud")
    with pytest.raises(SettingsError) as caught:
        load_settings()
    begins = [
        line.removeprefix(f"{config_file}:").split(" ")[:2] for line in caught.value.message.splitlines()
    ]
    assert begins == [
        ["1:", "threads"],
        ["3:", "there"],
        ["5:", "models.a.parallel"],
        ["7:", "there"],
        ["JAN_SERVE_LOG_LEVEL:", "log_level"],
    ]


def test_a_mistake_in_the_syntax_has_its_line(config_file: Path) -> None:
    config_file.write_text("port = 1\n\nthreads\n")
    with pytest.raises(SettingsError, match=f"^{re.escape(str(config_file))}:3: "):
        load_settings()


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


@pytest.mark.parametrize("key", ["data_dir", "models_dir", "grammars_dir", "log_file"])
def test_the_home_of_nobody_is_refused_by_name(
    key: str, config_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody = "~no-such-user/x"
    refused = f"{key} is in the home of a user that this machine does not know: ~no-such-user"
    with pytest.raises(SettingsError, match=f"^--.*{refused}"):
        load_settings({key: nobody})
    config_file.write_text(f'{key} = "{nobody}"\n')
    with pytest.raises(SettingsError, match=f"config.toml:1: {refused}"):
        load_settings()
    config_file.write_text("")
    monkeypatch.setenv(f"JAN_SERVE_{key.upper()}", nobody)
    with pytest.raises(SettingsError, match=f"^JAN_SERVE_.*{refused}"):
        load_settings()


def test_files_of_models_in_the_home_of_nobody_are_no_files(config_file: Path) -> None:
    names = '[models.a]\nprojector = "~no/x"\ndraft_model = "~no/y"\nlora = [{name = "a", file = "~no/z"}]\n'
    config_file.write_text(names)
    with pytest.raises(SettingsError, match=r"lora\[0\]\.file: there is no file .*~no/z"):
        load_settings()


def test_a_configuration_file_in_the_home_of_nobody_is_missing() -> None:
    with pytest.raises(SettingsError, match="there is no configuration file"):
        load_settings(config_file=Path("~no-such-user/config.toml"))


@pytest.fixture(autouse=True)
def no_config_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "config.toml"
    config.write_text("")
    monkeypatch.setenv("JAN_SERVE_CONFIG", str(config))


@pytest.mark.parametrize(
    ("flags", "url"),
    [
        ({}, "http://127.0.0.1:1337"),
        ({"port": 8080}, "http://127.0.0.1:8080"),
        ({"host": "0.0.0.0", "no_auth": True}, "http://127.0.0.1:1337"),
        ({"host": "::", "no_auth": True}, "http://[::1]:1337"),
        ({"host": "localhost"}, "http://localhost:1337"),
    ],
)
def test_the_configured_address(flags: dict[str, Any], url: str) -> None:
    assert server_address(load_settings(flags)).url == url


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("http://box:1", "http://box:1"),
        ("https://box.example/jan/", "https://box.example/jan"),
        ("box:8080", "http://box:8080"),
        ("http://box:1/v1", "http://box:1"),
        ("http://[::1]:5", "http://[::1]:5"),
    ],
)
def test_a_given_address(given: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = server_address(load_settings(), given)
    assert (found.url, found.origin) == (url, "--url")
    monkeypatch.setenv("JAN_SERVE_URL", given)
    loaded = load_settings()
    assert loaded.warnings == ()
    assert (server_address(loaded).url, server_address(loaded).origin) == (url, "JAN_SERVE_URL")
    assert server_address(loaded, "other:9").url == "http://other:9"


@pytest.mark.parametrize(
    "given",
    ["ftp://box", "http://", "http://box:x", "http://u:p@box", "http://b ox", "http://[::1", "box?x=1"],
)
def test_invalid_addresses(given: str) -> None:
    with pytest.raises(SettingsError, match=r"must (be an address such as|end with the host)"):
        server_address(load_settings(), given)


def test_any_free_port_is_not_known() -> None:
    with pytest.raises(SettingsError, match="--url"):
        server_address(load_settings({"port": 0}))


def test_the_first_key_goes_along(monkeypatch: pytest.MonkeyPatch) -> None:
    assert server_address(load_settings()).key is None
    monkeypatch.setenv("JAN_SERVE_API_KEYS", "first,second")
    found = server_address(load_settings())
    assert found.key is not None
    assert found.key.get_secret_value() == "first"
    assert found.key_origin == "JAN_SERVE_API_KEYS"
    assert "first" not in repr(found)
