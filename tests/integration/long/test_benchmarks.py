"""`make bench` on a fresh checkout with the built-in model: rows that it is too small for are reported as skipped."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from gguf import GGUFReader

from benchmarks.bench_model import write_bench_model
from benchmarks.servers import Command, peer_of
from benchmarks.shapes import SHAPES, DeltaNet, Shape
from tests.support.engine.worker import running_worker

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[3]


def test_rows_are_measured_or_left_out_with_the_reason(tmp_path: Path) -> None:
    out, plot = tmp_path / "new" / "samples.json", tmp_path / "new" / "medians.svg"
    names = ("one-stream", "restart-4k", "repeated-text", "rerank-100", "burst-16x100")
    rows = [word for name in names for word in ("--row", name)]
    files = ["--out", out, "--plot", plot, "--lanes", tmp_path / "lanes.svg"]
    command = [sys.executable, "-m", "benchmarks", "--rounds", "1", *rows, *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    document = json.loads(out.read_text())
    assert document["medians"]["jan-serve"]["one-stream"]["first_ms"] > 0
    assert document["samples"]["jan-serve"]["restart-4k"] == []
    assert "the server has a context of 2048 tokens, and this takes 4608" in " ".join(done.stdout.split())
    assert document["samples"]["jan-serve"]["repeated-text"] == []
    assert "start the server with --no-jump-forward" in " ".join(done.stdout.split())
    assert "rerank-100: Skipped: the model does not rank" in " ".join(done.stdout.split())
    assert plot.read_text().startswith("<svg")
    medians = document["medians"]["jan-serve"]["burst-16x100"]
    assert 0 < medians["first_p50_s"] <= medians["first_p95_s"] <= medians["first_max_s"] < medians["wall_s"]
    assert 0 < medians["between_p50_ms"] <= medians["between_p95_ms"] <= 1e3 * medians["pause_max_s"]
    lanes = (tmp_path / "lanes.svg").read_text()
    assert lanes.startswith("<svg")
    assert lanes.count("#e2e8f0") == 8, "a client waits in each lane"


def test_a_row_that_does_not_exist(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks", "--row", "no-such", "--out", tmp_path / "x.json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1
    assert "one-stream" in done.stderr


def test_the_model_to_measure_with_has_its_shape_and_answers(tmp_path: Path) -> None:
    path = tmp_path / "new" / "bench.gguf"
    shape = Shape(n_vocab=2000, n_embd=256, n_layer=2, n_head=4, n_head_kv=2, n_ff=512, n_ctx=1024)
    write_bench_model(path, shape)
    assert [entry.name for entry in path.parent.iterdir()] == ["bench.gguf"]
    with running_worker(path, n_ctx=512) as worker:
        assert (worker.facts.architecture, worker.facts.n_layer, worker.facts.n_vocab) == ("qwen2", 2, 2000)
        assert worker.facts.description.endswith("Q4_K - Medium")
        assert 5 <= len(worker.tokenize("the people said that water was great").tokens) <= 20
        assert worker.run_one("hello", max_tokens=8, ignore_eos=True).usage.completion_tokens == 8


def test_all_matrices_of_the_other_shape_have_k_quants(tmp_path: Path) -> None:
    path = tmp_path / "k-quants.gguf"
    shape = SHAPES["k-quants"]
    write_bench_model(path, replace(shape, n_vocab=2000, n_layer=1, n_ff=512, n_embd=shape.n_embd // 8))
    tensors = GGUFReader(path).tensors
    assert {tensor.tensor_type.name for tensor in tensors if len(tensor.shape) == 2} == {"Q4_K", "Q6_K"}
    assert {width % 256 for width in (shape.n_embd, shape.n_ff)} == {0}, "the same holds at full size"


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        *(("qwen3-8b", weights) for weights in ("IQ4_XS", "Q3_K_M", "Q2_K", "IQ3_S")),
        *(("qwen3-30b-a3b", "Q4_K_M"), ("gpt-oss-20b", "MXFP4"), ("qwen3.5-4b", "Q8_0")),
    ],
)
def test_shapes_of_larger_models_answer_in_each_type_of_weights(
    tmp_path: Path, name: str, weights: str
) -> None:
    path = tmp_path / "bench.gguf"
    whole = SHAPES[name]
    shape = replace(whole, n_vocab=2000, n_embd=256, n_ff=256, n_head=4, n_head_kv=2)
    if whole.n_expert:
        shape = replace(shape, n_expert=6, n_expert_used=2)
    if whole.delta:
        shape = replace(shape, delta=DeltaNet(n_group=2, n_head=4, state_size=128))
    write_bench_model(path, shape, weights=weights)
    types = {tensor.tensor_type.name for tensor in GGUFReader(path).tensors if len(tensor.shape) > 1}
    assert weights.removesuffix("_M") in types
    with running_worker(path, n_ctx=512) as worker:
        assert (worker.facts.architecture, worker.facts.n_layer) == (shape.architecture, shape.n_layer)
        assert worker.run_one("hello", max_tokens=8, ignore_eos=True).usage.completion_tokens == 8


@pytest.mark.parametrize(
    ("text", "name", "command"),
    [
        ("/opt/bin/llama-server -m {model}", "llama-server", "/opt/bin/llama-server -m {model}"),
        ("ik=/opt/ik/llama-server -m {model}", "ik", "/opt/ik/llama-server -m {model}"),
        ("server --alias=a -m {model}", "server", "server --alias=a -m {model}"),
    ],
)
def test_a_peer_is_named_by_its_program_or_by_its_name(text: str, name: str, command: str) -> None:
    assert peer_of(text) == Command(name, command)
