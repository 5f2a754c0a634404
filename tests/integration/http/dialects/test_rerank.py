"""Reranking and its command over a real server: a model with a head, one that writes, and one that does neither."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from models.recipe.fixtures import write_tiny_llama
from models.recipe.reranker_fixtures import RERANK_TEMPLATE, write_decoder_reranker
from tests.integration.http.support import error_of, serving_models
from tests.support.clients.raw_http import post
from tests.support.gguf.raw_llama import raw_llama
from tests.support.servers.served import Served

pytestmark = pytest.mark.integration

QUERY = "where do people live"
DOCUMENTS = [f"people live in home {number}" for number in range(30)]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("rerankers")
    paths = {name: folder / f"{name}.gguf" for name in ("scores", "writes", "chats")}
    write_decoder_reranker(paths["scores"], head=True)
    write_decoder_reranker(paths["writes"], head=False)
    write_tiny_llama(paths["chats"])
    return paths


@pytest.fixture(scope="module")
def server(files: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    with serving_models(tmp_path_factory.mktemp("server"), *files.values()) as running:
        yield running


def ranked(server: Served, model: str, **fields: Any) -> dict[int, float]:
    body = {"model": model, "query": QUERY, "documents": DOCUMENTS, **fields}
    response = post(server.url(), "/v1/rerank", body)
    assert response.status == 200, response.body
    results = response.json()["results"]
    scores = [item["relevance_score"] for item in results]
    assert scores == sorted(scores, reverse=True)
    return {item["index"]: item["relevance_score"] for item in results}


def test_scores_are_those_of_llama_cpp_pair_by_pair(server: Served, files: dict[str, Path]) -> None:
    scores = ranked(server, "scores")
    with raw_llama(files["scores"]) as raw:
        for index, document in enumerate(DOCUMENTS):
            text = RERANK_TEMPLATE.replace("{query}", QUERY).replace("{document}", document)
            assert scores[index] == pytest.approx(float(raw.scores(raw.tokens(text), 2)[0]), abs=1e-4)


def test_a_model_that_writes_yes_or_no_ranks_too(server: Served) -> None:
    scores = ranked(server, "writes", top_n=5)
    assert len(scores) == 5 and all(0 < score < 1 for score in scores.values())


def test_long_documents_are_refused_by_name(server: Served) -> None:
    body = {"model": "scores", "query": "q", "documents": ["a", "oil " * 2000, "b", "air " * 3000]}
    response = post(server.url(), "/rerank", body)
    error = error_of(response)
    assert (response.status, error["code"]) == (400, "context_length_exceeded")
    assert error["message"].startswith("documents: item 1: ")
    assert post(server.url(), "/rerank", body | {"truncate": True}).status == 200
    assert post(server.url(), "/v2/rerank", body).status == 200


def test_the_command_sorts_lines(server: Served) -> None:
    command = [sys.executable, "-m", "jan_serve", "rerank", "scores", QUERY, "--url", server.url()]
    lines = "\n".join(DOCUMENTS).encode()
    scores = ranked(server, "scores")
    best = max(scores, key=lambda index: scores[index])
    done = subprocess.run([*command, "--top", "3"], input=lines, capture_output=True, check=True, timeout=120)
    first, *others = done.stdout.decode().splitlines()
    assert len(others) == 2
    assert first.split("\t")[1] == DOCUMENTS[best]
    done = subprocess.run([*command, "--json"], input=lines, capture_output=True, check=True, timeout=120)
    answer = json.loads(done.stdout)
    assert answer["results"][0]["index"] == best and len(answer["results"]) == len(DOCUMENTS)
    empty = subprocess.run(
        command, input=b"\n", capture_output=True, check=False, timeout=120, env=os.environ
    )
    assert empty.returncode == 2 and b"no documents" in empty.stderr
