"""Model files at which llama.cpp ends the process: refused with their name, by the header or by the first token."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import gguf
import pytest

from models.recipe.fixtures import write_tiny_bert, write_tiny_llama
from models.recipe.projector_fixtures import write_tiny_qwen2vl
from tests.integration.http.support import serving_models
from tests.support.clients.raw_http import post
from tests.support.drawn_grid import some
from tests.support.engine.worker import WorkerEnded, running_worker
from tests.support.gguf.gguf_edits import Kind, edited

pytestmark = pytest.mark.integration

Type = gguf.GGMLQuantizationType
RMS = "llama.attention.layer_norm_rms_epsilon"
BIAS, EMBEDDING = "blk.0.attn_q.bias", "token_embd.weight"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By name. llama, bert: sound. shown-…: their headers tell. run-…: only a computation does."""
    folder = tmp_path_factory.mktemp("hostile")
    names = (
        "llama",
        "bert",
        "qwen2vl",
        "shown-type",
        "shown-epsilon",
        "run-bias",
        "run-bert",
        "run-sections",
    )
    paths = {name: folder / f"{name}.gguf" for name in names}
    write_tiny_llama(paths["llama"], n_embd=256, quantize=False)
    write_tiny_bert(paths["bert"], quantize=False)
    write_tiny_qwen2vl(paths["qwen2vl"], quantize=False)
    edited(paths["llama"], paths["shown-type"], types={EMBEDDING: Type.Q8_K})
    edited(paths["llama"], paths["shown-epsilon"], {RMS: (Kind.FLOAT32, -1.0)})
    edited(paths["qwen2vl"], paths["run-bias"], types={BIAS: Type.F16})
    edited(paths["bert"], paths["run-bert"], types={"token_types.weight": Type.F16})
    sections = "qwen2vl.rope.dimension_sections"
    edited(paths["qwen2vl"], paths["run-sections"], {sections: (Kind.ARRAY, [0, 0, 0, 0])})
    return paths


@pytest.fixture(scope="module")
def url(files: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    with serving_models(tmp_path_factory.mktemp("server"), *files.values()) as server:
        yield server.url()


def is_answered(url: str, model: str) -> bool:
    body = {"model": model, "prompt": "hello é", "max_tokens": 2}
    return post(url, "/v1/completions", body).status == 200


@pytest.mark.parametrize("name", ["shown-type", "shown-epsilon", "run-bias", "run-sections"])
def test_a_file_that_can_never_work_is_unprocessable(url: str, name: str) -> None:
    for _ in range(2):
        refused = post(url, "/v1/completions", {"model": name, "prompt": "hello", "max_tokens": 2})
        assert refused.status == 422, refused.body
        error = refused.json()["error"]
        assert error["code"] == "invalid_model"
        assert f"{name}.gguf" in error["message"]
        assert "again" not in error["message"].lower()
    assert is_answered(url, "llama") and is_answered(url, "qwen2vl")


def test_a_model_that_only_embeds_is_tried_too(url: str) -> None:
    refused = post(url, "/v1/embeddings", {"model": "run-bert", "input": "hello"})
    assert (refused.status, "run-bert.gguf" in refused.json()["error"]["message"]) == (422, True)
    assert post(url, "/v1/embeddings", {"model": "bert", "input": "hello é"}).status == 200


@pytest.mark.parametrize("name", ["shown-type", "shown-epsilon", "run-bias", "run-bert", "run-sections"])
def test_a_worker_ends_before_it_says_that_it_is_ready(files: dict[str, Path], name: str) -> None:
    with pytest.raises(WorkerEnded, match="status -"), running_worker(files[name], n_ctx=256):
        pytest.fail("it became ready")


STORED = [kind for kind in Type if kind.name not in ("Q8_1", "Q8_K", "I8", "I16", "I32", "I64", "F64")]


@pytest.mark.drawn
@pytest.mark.parametrize("kind", some(STORED, 9), ids=str)
def test_all_types_of_weights_are_computed(files: dict[str, Path], tmp_path: Path, kind: Type) -> None:
    types = {EMBEDDING: kind, "blk.0.ffn_down.weight": kind, "blk.1.attn_q.weight": kind}
    path = edited(files["llama"], tmp_path / "m.gguf", types=types)
    with running_worker(path, n_ctx=256, threads=1) as worker:
        assert worker.run_one("hello", max_tokens=1, ignore_eos=True).usage.completion_tokens == 1


@pytest.mark.parametrize("n_ctx", [2, 8, 17])
def test_a_context_may_have_fewer_cells_than_sequences(files: dict[str, Path], n_ctx: int) -> None:
    with running_worker(files["llama"], n_ctx=n_ctx, parallel=4) as worker:
        assert worker.facts.parallel == min(4, n_ctx)
        assert worker.run_one("a", max_tokens=1, ignore_eos=True).usage.completion_tokens == 1
