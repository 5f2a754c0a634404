"""Programs that speak Ollama's API: what they need of the server beyond its address."""

from __future__ import annotations

import ast

import pytest
import yaml
from msgspec.structs import replace

from jan_serve.editors.ollama_recipes import OLLAMA_RECIPES
from jan_serve.editors.recipes import RECIPES
from tests.unit.editors.support import CHAT, FOLDERS, facts, parsed


def test_goose() -> None:
    assert parsed("goose") == {
        "GOOSE_MODEL": "org/chat:Q4",
        "GOOSE_PROVIDER": "ollama",
        "OLLAMA_HOST": "http://127.0.0.1:1337",
    }
    # Its Ollama provider cannot send a key.
    assert parsed("goose", needs_key=True)["GOOSE_PROVIDER"] == "openai"


@pytest.mark.parametrize(
    ("name", "needs_key", "words"),
    [
        ("copilot", True, "--open-network 127.0.0.1/32"),
        ("copilot", True, "--open-route /v1/chat/completions"),
        ("raycast", True, "--open-network 127.0.0.1/32, which"),
        ("home-assistant", False, "--host 0.0.0.0 --api-key KEY --open-network 192.168.1.0/24"),
        ("home-assistant", True, "http://THIS-MACHINE:1337"),
        ("n8n", False, "--allowed-host host.docker.internal"),
        ("n8n", True, "http://host.docker.internal:1337"),
        ("langchain", True, '"Authorization": "Bearer YOUR-KEY"'),
        ("obsidian", False, "app://obsidian.md"),
        ("cursor", False, "Cursor's own servers"),
        ("windsurf", False, "no setting"),
    ],
)
def test_what_programs_need_of_the_server(name: str, needs_key: bool, words: str) -> None:
    assert words in "\n".join(RECIPES[name](facts(needs_key=needs_key), FOLDERS).steps)


def steps(name: str, *, needs_key: bool = False) -> str:
    return "\n".join(OLLAMA_RECIPES[name](facts(needs_key=needs_key), FOLDERS).steps)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("copilot", "--open-network"),
        ("raycast", "--open-network"),
        ("n8n", "the server's key"),
        ("langchain", "client_kwargs"),
        ("cherry-studio", "the server's key"),
        ("obsidian", "the server's key"),
    ],
)
def test_the_key_is_named_only_where_the_server_has_one(name: str, words: str) -> None:
    assert (words in steps(name), words in steps(name, needs_key=True)) == (False, True)


def test_a_server_with_a_key_is_not_given_another_one() -> None:
    for name in ("home-assistant", "n8n"):
        assert "--api-key KEY" in steps(name)
        assert "--api-key" not in steps(name, needs_key=True)


def test_the_port_is_that_of_the_address() -> None:
    server = replace(facts(), url="http://[::1]")
    assert "port 80 through" in "\n".join(OLLAMA_RECIPES["n8n"](server, FOLDERS).steps)


def test_home_assistant_gets_the_context_of_the_model() -> None:
    assert "context window size 8192" in steps("home-assistant")
    unknown = replace(facts(), model=replace(CHAT, n_ctx=None))
    assert "the n_ctx of the model" in "\n".join(OLLAMA_RECIPES["home-assistant"](unknown, FOLDERS).steps)


def test_a_quote_in_a_name_stays_in_the_string_for_langchain() -> None:
    quoted = replace(facts(), model=replace(CHAT, name='a"b'))
    _, line, _ = OLLAMA_RECIPES["langchain"](quoted, FOLDERS).steps
    strings = [node.value for node in ast.walk(ast.parse(line)) if isinstance(node, ast.Constant)]
    assert strings == ['a"b', "http://127.0.0.1:1337"]


@pytest.mark.parametrize("needs_key", [False, True])
def test_the_lines_for_langchain_are_python(needs_key: bool) -> None:
    first, second, _ = OLLAMA_RECIPES["langchain"](facts(needs_key=needs_key), FOLDERS).steps
    ast.parse(f"{first}\n{second}")


def test_goose_keeps_its_other_settings() -> None:
    change = OLLAMA_RECIPES["goose"](facts(), FOLDERS).change
    assert change is not None
    merged = yaml.safe_load(change.merge("GOOSE_MODE: auto\nGOOSE_MODEL: old\n"))
    assert (merged["GOOSE_MODE"], merged["GOOSE_MODEL"]) == ("auto", "org/chat:Q4")
