"""Settings of single models through a whole server: names, defaults in every API, adapters, and changes at run time."""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import pytest

from models.recipe.lora_file import llama_shapes, write_lora
from tests.integration.http.support import EXACT_FLAGS, error_of, metric
from tests.support.clients.raw_http import get, post
from tests.support.processes import wait_until
from tests.support.servers.served import Served, serving

TABLE: Final = """\
data_dir = "data"

[models."exact-llama"]
n_ctx = 512
aliases = ["gpt-4o-mini", "llama3:8b"]
template = "last.jinja"

[models."exact-llama".sampling]
temperature = 0
repeat_penalty = 1
max_tokens = 5

[[models."exact-llama".lora]]
name = "one"
file = "one.gguf"

[[models."exact-llama".lora]]
name = "two"
file = "two.gguf"
scale = 0.5
"""
PROMPT: Final = "the people said that"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, exact_llama: Path) -> Path:
    """A configuration with its files, and two models."""
    folder = tmp_path_factory.mktemp("settings")
    for name in ("exact-llama", "plain"):
        (folder / "models").mkdir(exist_ok=True)
        shutil.copyfile(exact_llama, folder / "models" / f"{name}.gguf")
    for number, name in enumerate(("one", "two")):
        write_lora(folder / f"{name}.gguf", llama_shapes(), seed=number)
    (folder / "last.jinja").write_text("{{ messages[-1].content }}")
    (folder / "config.toml").write_text(TABLE)
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Generator[Served]:
    flags = ("--port", "0", "--models-dir", str(folder / "models"), "--model", "exact-llama", *EXACT_FLAGS)
    with serving(folder, *flags) as server:
        server.url()
        yield server


@pytest.fixture(scope="module")
def url(server: Served) -> str:
    return server.url()


def rewrite(path: Path, text: str) -> None:
    """Write a file with a new modification time, however fast the test is."""
    before = path.stat().st_mtime_ns
    path.write_text(text)
    os.utime(path, ns=(before + 1_000_000_000, before + 1_000_000_000))


def completed(url: str, **fields: Any) -> dict[str, Any]:
    reply = post(url, "/v1/completions", {"prompt": PROMPT, **fields})
    assert reply.status == 200, reply.body
    body: dict[str, Any] = reply.json()
    return body


def text(url: str, **fields: Any) -> str:
    text: str = completed(url, **fields)["choices"][0]["text"]
    return text


def test_aliases_name_the_model(url: str) -> None:
    wanted = text(url, model="exact-llama")
    for name in ("gpt-4o-mini", "GPT-4O-MINI", "llama3:8b", "exact-llama.gguf"):
        assert text(url, model=name) == wanted
    [listed] = [card for card in get(url, "/v1/models").json()["data"] if card["id"] == "exact-llama"]
    assert listed["aliases"] == ["gpt-4o-mini", "llama3:8b"]


def test_defaults_of_the_model_apply_to_fields_that_a_request_leaves_out(url: str) -> None:
    body = completed(url)
    assert body["usage"]["completion_tokens"] == 5
    assert text(url) == text(url, temperature=0, repeat_penalty=1, max_tokens=5)
    assert completed(url, max_tokens=7)["usage"]["completion_tokens"] == 7
    assert len({text(url, temperature=2.0, seed=seed, top_k=0, min_p=0) for seed in range(3)}) > 1


def test_another_model_has_none_of_it(url: str) -> None:
    assert completed(url, model="plain")["usage"]["completion_tokens"] == 16


def test_defaults_reach_every_api(url: str) -> None:
    greedy = text(url)
    chat = {"messages": [{"role": "user", "content": PROMPT}]}
    jan = post(url, "/v1/chat/completions", chat).json()
    assert jan["choices"][0]["message"]["content"] == greedy
    tgi = post(url, "/tgi/generate", {"inputs": PROMPT}).json()
    assert tgi["generated_text"] == greedy
    assert post(url, "/tgi/v1/chat/completions", chat).json()["usage"]["completion_tokens"] == 5
    lmdeploy = {"model": "exact-llama", "prompt": PROMPT}
    reply = post(url, "/lmdeploy/v1/completions", lmdeploy).json()
    assert reply["choices"][0]["text"] == greedy
    infill = post(url, "/infill", {"input_prefix": PROMPT}).json()
    assert infill["tokens_predicted"] == 5


def test_adapters_are_chosen_in_every_way(url: str) -> None:
    base = text(url)
    one, two = text(url, lora=["one"]), text(url, lora=["two"])
    assert len({base, one, two}) == 3
    for fields in (
        {"model": "exact-llama:one"},
        {"model": "gpt-4o-mini:ONE"},
        {"model": "one"},
        {"lora": [{"id": 0}]},
        {"lora": [{"name": "one", "scale": 1.0}, {"id": 1, "scale": 0}]},
        {"model": "exact-llama:two", "lora": ["one"]},
    ):
        assert text(url, **fields) == one, fields
    assert text(url, lora=[{"id": 1, "scale": 0.5}]) == two
    assert text(url, model="exact-llama:one", lora=[]) == base
    chat = {"messages": [{"role": "user", "content": PROMPT}], "model": "exact-llama:one"}
    assert post(url, "/v1/chat/completions", chat).json()["choices"][0]["message"]["content"] == one
    for body, expected in (({"adapter_id": "one"}, one), ({"adapter_id": "nope"}, base), ({}, base)):
        reply = post(url, "/tgi/generate", {"inputs": PROMPT, "parameters": body}).json()
        assert reply["generated_text"] == expected
    lmdeploy = {"model": "exact-llama:one", "prompt": PROMPT}
    assert post(url, "/lmdeploy/v1/completions", lmdeploy).json()["choices"][0]["text"] == one


def test_adapters_are_listed(url: str) -> None:
    cards = {card["id"]: card for card in get(url, "/v1/models").json()["data"]}
    assert {"exact-llama", "exact-llama:one", "exact-llama:two", "plain"} <= cards.keys()
    assert cards["exact-llama:two"]["parent"] == "exact-llama"
    assert "exact-llama" in get(url, "/v1/models/exact-llama:one").json()["parent"]


def test_adapters_have_ids_as_llama_server_has_them(url: str) -> None:
    assert get(url, "/lora-adapters").json() == [
        {"id": 0, "name": "one", "path": "one", "scale": 1.0},
        {"id": 1, "name": "two", "path": "two", "scale": 0.5},
    ]
    assert get(url, "/lora-adapters?model=plain").json() == []


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"lora": ["nope"]}, "lora", "`exact-llama` has no LoRA adapter `nope`; it has one, two"),
        ({"lora": [{"id": 2}]}, "lora", "has no LoRA adapter `2`"),
        ({"lora": ["one", {"id": 0}]}, "lora", "there twice"),
        ({"lora": [{"id": 0, "scale": 1000}]}, "lora", "from -100 to 100"),
        ({"model": "exact-llama:nope"}, "model", "has no LoRA adapter `nope`"),
        ({"model": "plain", "lora": ["one"]}, "lora", "`plain` has no LoRA adapter `one`; it has none"),
    ],
)
def test_adapters_that_are_not_there(url: str, fields: dict[str, Any], param: str, message: str) -> None:
    reply = post(url, "/v1/completions", {"prompt": PROMPT, **fields})
    error = error_of(reply)
    assert (reply.status, error["param"]) == (400, param)
    assert message in error["message"]


def test_embeddings_under_an_adapter(url: str) -> None:
    def vector(model: str) -> list[float]:
        reply = post(url, "/v1/embeddings", {"model": model, "input": "hello"})
        assert reply.status == 200, reply.body
        values: list[float] = reply.json()["data"][0]["embedding"]
        return values

    assert vector("exact-llama") != vector("exact-llama:one")


def test_changes_count_while_the_server_runs(server: Served, url: str, folder: Path) -> None:
    """Last in this file: it changes the settings. A change that a loaded model cannot take over reloads it."""
    before = text(url)

    def loads() -> float:
        return metric(url, "jan_serve_model_loads_total", model="exact-llama")

    loaded = loads()
    changed = TABLE.replace("max_tokens = 5", "max_tokens = 9").replace('"gpt-4o-mini"', '"other"')
    rewrite(folder / "config.toml", changed)
    assert completed(url)["usage"]["completion_tokens"] == 9
    assert text(url, model="other", max_tokens=5) == before
    assert loads() == loaded
    assert "they apply from the next request" in server.log

    rewrite(folder / "last.jinja", "{{ messages[-1].content }} and so")
    chat = {"messages": [{"role": "user", "content": PROMPT}]}
    assert post(url, "/apply-template", chat).json()["prompt"] == f"{PROMPT} and so"

    rewrite(folder / "config.toml", changed.replace("n_ctx = 512", "n_ctx = 256"))
    assert text(url, max_tokens=5) == before
    assert get(url, "/props").json()["default_generation_settings"]["n_ctx"] == 256
    assert loads() == loaded + 1
    assert "n_ctx; they apply when the model is reloaded" in server.log

    rewrite(folder / "config.toml", changed.replace("n_ctx = 512", "n_ctx = 1"))
    assert text(url, max_tokens=5) == before
    wait_until(lambda: "config.toml:4: models.exact-llama.n_ctx must be" in server.log)
    assert loads() == loaded + 1

    write_lora(folder / "one.gguf", llama_shapes(), architecture="qwen2")
    rewrite(folder / "config.toml", changed)
    error = error_of(post(url, "/v1/completions", {"prompt": PROMPT}))
    assert (
        "The LoRA adapter `one` cannot be used: one.gguf is made for models of the architecture 'qwen2'"
        in (error["message"])
    )
