"""Variants with a LoRA adapter, made and used through a whole server."""

from __future__ import annotations

import hashlib
from collections.abc import Generator
from pathlib import Path
from typing import Final

import httpx2
import pytest

from models.recipe.lora_file import llama_shapes, write_lora
from tests.integration.http.support import GREEDY, serving_models
from tests.support.clients.raw_http import get, post
from tests.support.servers.served import Served

PROMPT: Final = "the people said that"


@pytest.fixture
def server(tmp_path: Path, exact_llama: Path) -> Generator[Served]:
    with serving_models(tmp_path, exact_llama) as server:
        yield server


def create(url: str, name: str, seed: int, folder: Path, base: str = "exact-llama") -> str:
    """Returns the adapter's digest."""
    file = folder / f"{name}.gguf"
    write_lora(file, llama_shapes(), seed=seed)
    content = file.read_bytes()
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    assert post(url, f"/api/blobs/{digest}", content).status == 201
    made = post(url, "/api/create", {"model": name, "from": base, "adapters": {file.name: digest}})
    assert made.status == 200, made.body
    return digest


def text(url: str, model: str) -> str:
    reply = post(url, "/v1/completions", {"model": model, "prompt": PROMPT, **GREEDY})
    assert reply.status == 200, reply.body
    shown: str = reply.json()["choices"][0]["text"]
    return shown


def delete(url: str, model: str) -> int:
    return httpx2.request("DELETE", f"{url}/api/delete", json={"model": model}).status_code


def listed(url: str) -> set[str]:
    return {model["name"] for model in get(url, "/api/tags").json()["models"]}


def test_an_uploaded_adapter_makes_a_variant(server: Served, tmp_path: Path) -> None:
    url = server.url()
    base = text(url, "exact-llama")
    digest = create(url, "one", 0, tmp_path)
    create(url, "two", 1, tmp_path)
    answers = {name: text(url, name) for name in ("exact-llama", "one", "two:latest", "ONE")}
    assert answers["exact-llama"] == base
    assert answers["one"] == answers["ONE"]
    assert len(set(answers.values())) == 3
    assert listed(url) == {"exact-llama:latest", "jan-tiny:latest", "one:latest", "two:latest"}
    assert f"ADAPTER {digest}" in post(url, "/api/show", {"model": "one"}).json()["modelfile"]
    post(url, "/api/create", {"model": "three", "from": "one", "system": "Be brief."})
    assert text(url, "three") == answers["one"]

    assert delete(url, "one") == 200
    assert text(url, "three") == answers["one"], "another variant has the adapter too"
    assert delete(url, "three") == 200
    assert text(url, "two") == answers["two:latest"]
    assert text(url, "exact-llama") == base
    kept = list((tmp_path / "models").rglob("adapters/*.gguf"))
    assert len(kept) == 1
