"""The same request has the same answer to the bit, whatever else the server does and however it is set up."""

from __future__ import annotations

import ctypes
import os
import random
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import gguf
import llama_cpp
import pytest

from benchmarks.bench_model import write_bench_model
from benchmarks.shapes import DeltaNet, Shape
from jan_serve.ipc.messages import EngineRequest, ShutdownRequest
from jan_serve.resources import builtin_model
from models.recipe import fixtures
from models.recipe.mixture_fixtures import write_tiny_mixture
from tests.support.drawn_grid import drawn_grid
from tests.support.engine.worker import Choice, Worker, generate, running_worker
from tests.support.gguf.ggml import is_multiplied_here
from tests.support.sameness import IS_ON_DEVICE

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(IS_ON_DEVICE, reason="products of an accelerator depend on the number of rows"),
]

BUILTIN = builtin_model() or Path()
WORDS = "the people said that water was great and every good house has a large door to think about".split()
Answer = list[tuple[int, float | None, tuple[tuple[int, float | None], ...]]]

# Threads of ggml wait for each other in loops, so two of them take minutes where one processor is shared.
IS_LONG = "TEST_DRAWS" in os.environ
THREADS = [1, 2] if IS_LONG else [1]
ALONE: dict[str, Any] = {"n_ctx": 2048, "parallel": 1, "threads": 1}
SETTINGS: dict[str, dict[str, Any]] = {
    "few-cells": {"n_ctx": 1536, "parallel": 12, "cache_sequences": 4},
    "small-batches": {"n_ctx": 2048, "parallel": 12, "n_batch": 64, "n_ubatch": 32},
    "drafts": {"n_ctx": 2048, "parallel": 8, "prompt_lookup": "on"},
    "ram": {"n_ctx": 1024, "parallel": 4, "cache_ram_bytes": 1 << 26, "idle_cells": 0},
}

MIXTURE = "Q4_K-mixture"
# Types of llama.cpp's quantiser (enum llama_ftype).
FILE_TYPES = {
    **{"F32": 0, "F16": 1, "BF16": 32, "Q4_0": 2, "Q5_0": 8, "Q8_0": 7, "IQ4_NL": 25, "Q4_K": 15, "Q5_K": 17},
    **{"Q6_K": 18, "Q3_K": 12, "IQ4_XS": 30, MIXTURE: 15, "Q4_1": 3, "Q5_1": 9, "Q2_K": 10, "IQ3_S": 26},
}


def is_deterministic_only(kind: str) -> bool:
    """Whether llama.cpp's products of this type depend on the number of tokens, on this processor."""
    name = kind.removesuffix("-mixture")
    return name.endswith(("_K", "_XS", "3_S")) and not is_multiplied_here(gguf.GGMLQuantizationType[name])


def words(random_: random.Random, count: int) -> str:
    return " ".join(random_.choices(WORDS, k=count))


def asked(seed: int) -> list[EngineRequest]:
    """Greedy and sampled requests: of a few tokens, of more than a step, with a common prefix, and one that repeats.

    By day, each prompt once.
    """
    random_ = random.Random(seed)
    common = words(random_, 60)
    prompts = ["Hello!", common, f"{common} {words(random_, 90)}", " ".join([words(random_, 8)] * 6)]
    fields: list[dict[str, Any]] = [{}, {"temperature": 1.5, "seed": seed}]
    pairs = [(prompt, more) for prompt in prompts for more in fields]
    return [
        generate(prompt, max_tokens=24, ignore_eos=True, return_tokens=True, logprobs=3, **more)
        for prompt, more in (pairs if IS_LONG else (pairs[0], pairs[3], pairs[4], pairs[7]))
    ]


def load(seed: int) -> list[EngineRequest]:
    """What comes and goes beside them."""
    random_ = random.Random(seed)
    return [
        generate(words(random_, random_.choice([1, 20, 150])), max_tokens=random_.choice([1, 9, 30]))
        for _ in range(12)
    ]


def bits(choice: Choice) -> Answer:
    return [
        (token.id, token.logprob, tuple((top.id, top.logprob) for top in token.top))
        for token in choice.tokens
    ]


def answers(worker: Worker, requests: Iterable[EngineRequest]) -> list[Answer]:
    """Answers to requests that come one after the other."""
    return [bits(worker.run(request)[0].choice) for request in requests]


@pytest.fixture(scope="module")
def alone() -> list[Answer]:
    """Each computed by a worker that has read nothing else, with one thread."""
    found: list[Answer] = []
    for request in asked(1):
        with running_worker(BUILTIN, **ALONE) as worker:
            found += answers(worker, [request])
    return found


@drawn_grid(settings=list(SETTINGS), threads=THREADS)
def test_an_answer_has_the_same_bits_beside_others(alone: list[Answer], settings: str, threads: int) -> None:
    requests = asked(1)
    with running_worker(BUILTIN, threads=threads, **SETTINGS[settings]) as worker:
        for seed in range(2 if IS_LONG else 1):
            others = load(seed)
            together = [*others[:6], *requests, *others[6:]]
            random.Random(seed).shuffle(together)
            worker.run(*together)
            assert [bits(worker.results[request.id].choice) for request in requests] == alone
            requests = asked(1)
        assert answers(worker, requests) == alone, "one after the other, from what is cached"


@pytest.mark.drawn
def test_an_answer_has_the_same_bits_from_disk(alone: list[Answer], tmp_path: Path) -> None:
    settings: dict[str, Any] = {**ALONE, "cache_dir": str(tmp_path)}
    for _ in range(2):
        with running_worker(BUILTIN, **settings) as worker:
            assert answers(worker, asked(1)) == alone
            worker.send(ShutdownRequest())
            assert worker.process.wait(30.0) == 0


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "F32.gguf"
    fixtures.write_tiny_llama(path, n_embd=256, quantize=False)
    return path


@pytest.mark.drawn
@pytest.mark.parametrize("kind", [*FILE_TYPES] if IS_LONG else ["F32", "Q2_K", MIXTURE])
def test_weights_of_any_type(weights: Path, kind: str) -> None:
    path, source = weights.with_name(f"{kind}.gguf"), weights
    if kind == MIXTURE:
        source = weights.with_name("mixture.gguf")
        write_tiny_mixture(source, n_embd=256, n_layer=2, quantize=False)
    if not path.exists():
        params = llama_cpp.llama_model_quantize_default_params()
        params.ftype = FILE_TYPES[kind]
        paths = str(source).encode(), str(path).encode()
        assert llama_cpp.llama_model_quantize(*paths, ctypes.pointer(params)) == 0
    check_alone_and_beside(path, deterministic=is_deterministic_only(kind))


def write_delta_net(path: Path) -> None:
    sizes: dict[str, Any] = {"n_embd": 256, "n_layer": 4, "n_head": 2, "head_size": 128, "n_ff": 512}
    net = DeltaNet(n_group=2, n_head=4, state_size=64)
    shape = Shape(n_vocab=4096, n_ctx=2048, n_head_kv=1, architecture="qwen35", delta=net, **sizes)
    write_bench_model(path, shape)


def test_gated_delta_nets(tmp_path: Path) -> None:
    path = tmp_path / "delta.gguf"
    write_delta_net(path)
    check_alone_and_beside(path, deterministic=is_deterministic_only("Q4_K"))


WRITERS: dict[str, Callable[[Path], object]] = {
    "delta net": write_delta_net,
    "attention": partial(fixtures.write_tiny_llama, quantize=False),
    "sliding": partial(fixtures.write_tiny_sliding, quantize=False),
    "recurrent": partial(fixtures.write_tiny_recurrent, quantize=False),
    "hybrid": partial(fixtures.write_tiny_hybrid, quantize=False),
}
IN_CHUNKS = frozenset({"recurrent", "hybrid"})
"""llama.cpp computes these states in chunks of the prompt, whose borders change the last bits."""


@pytest.mark.drawn
@pytest.mark.parametrize("kind", WRITERS)
def test_answers_are_as_alone_while_sequences_come_and_go(tmp_path: Path, kind: str) -> None:
    """Requests come at any step of others and leave them at any, so that the places of their states change."""
    path = tmp_path / "model.gguf"
    WRITERS[kind](path)
    deterministic = kind == "delta net" and is_deterministic_only("Q4_K")
    fields: dict[str, Any] = {**SETTINGS["small-batches"], "threads": 1, "deterministic": deterministic}
    random_ = random.Random(8)

    def questions(round_: int) -> list[EngineRequest]:
        texts = [words(random.Random(size), size) for size in (1, 12, 60)]
        asked: dict[str, Any] = {"max_tokens": 12, "return_tokens": True, "logprobs": 3}
        return [generate(text, cache_salt=f"{round_}-{text}", **asked) for text in texts]

    with running_worker(path, **fields) as worker:
        alone = answers(worker, questions(0))
    with running_worker(path, **fields) as worker:
        for round_ in range(1, 25):
            ours = questions(round_)
            everybody = [*ours, *load(round_)[:6]]
            random_.shuffle(everybody)
            for number, request in enumerate(everybody, 1):
                worker.send(request)
                for _ in range(random_.choice([0, 1, 4, 9])):
                    if not all(worker.results[sent.id].is_over for sent in everybody[:number]):
                        worker.advance()
            worker.until(*everybody)
            found = [bits(worker.results[request.id].choice) for request in ours]
            if kind in IN_CHUNKS:
                assert [is_close(*pair) for pair in zip(found, alone, strict=True)] == [True] * len(ours)
            else:
                assert found == alone


def is_close(one: Answer, other: Answer) -> bool:
    """Whether tokens are equally likely up to the first that differs, which was as likely as its rival."""
    for mine, theirs in zip(one, other, strict=False):
        if mine[1] != pytest.approx(theirs[1], abs=5e-3):
            return False
        if mine[0] != theirs[0]:
            return True
    return True


def check_alone_and_beside(path: Path, *, deterministic: bool) -> None:
    fields: dict[str, Any] = {
        **SETTINGS["small-batches"],
        "n_ctx": 1024,
        "threads": 1,
        "deterministic": deterministic,
    }
    prompts = ["Hello!", words(random.Random(2), 12), words(random.Random(3), 60)]
    requests = [
        generate(prompt, max_tokens=12, return_tokens=True, logprobs=3, cache_salt=str(salt))
        for salt, prompt in enumerate(prompts)
    ]
    with running_worker(path, **fields) as worker:
        one_by_one = answers(worker, requests)
    with running_worker(path, **fields) as worker:
        worker.run(*load(4)[:6], *requests)
        assert [bits(worker.results[request.id].choice) for request in requests] == one_by_one
