"""Random-weight GGUF fixtures: llama.cpp loads them, and they behave enough like models to test an engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import pytest

from models.recipe import fixtures
from models.recipe.vocabulary import CONTROL_TOKENS, MARKER_TOKENS

CHAT = {
    "llama": fixtures.write_tiny_llama,
    "recurrent": fixtures.write_tiny_recurrent,
    "hybrid": fixtures.write_tiny_hybrid,
}


def header(path: Path) -> dict[str, Any]:
    return {name: field.contents() for name, field in gguf.GGUFReader(path).fields.items()}


def open_model(path: Path, *, embedding: bool = False) -> Any:
    llama_cpp = pytest.importorskip("llama_cpp")
    return llama_cpp.Llama(str(path), n_ctx=128, n_batch=128, n_threads=1, embedding=embedding, verbose=False)


def greedy(model: Any, prompt: bytes, count: int) -> list[int]:
    model.reset()
    tokens: list[int] = []
    for token in model.generate(model.tokenize(prompt, add_bos=False), temp=0.0):
        tokens.append(token)
        if len(tokens) == count:
            break
    return tokens


@pytest.mark.parametrize("kind", sorted(fixtures.WRITERS))
def test_file_is_the_same_for_the_same_seed(kind: str, tmp_path: Path) -> None:
    first, second = tmp_path / "first.gguf", tmp_path / "second.gguf"
    fixtures.WRITERS[kind](first)
    fixtures.WRITERS[kind](second)
    assert first.read_bytes() == second.read_bytes()
    assert first.stat().st_size < 1_000_000


@pytest.mark.parametrize("kind", sorted(CHAT))
def test_header_tells_what_a_server_needs(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    CHAT[kind](path, seed=1)
    found = header(path)
    tokens: list[str] = found["tokenizer.ggml.tokens"]
    kinds: list[int] = found["tokenizer.ggml.token_type"]
    assert tokens[found["tokenizer.ggml.eos_token_id"]] == "<|im_end|>"
    assert tokens[found["tokenizer.ggml.fim_mid_token_id"]] == "<|fim_middle|>"
    assert {tokens[index] for index, kind_ in enumerate(kinds) if kind_ == gguf.TokenType.CONTROL} == set(
        CONTROL_TOKENS
    )
    assert {tokens[i] for i, kind_ in enumerate(kinds) if kind_ == gguf.TokenType.USER_DEFINED} == set(
        MARKER_TOKENS
    )
    assert "<tool_call>" in found["tokenizer.chat_template"]


def test_a_model_without_a_template_and_with_other_metadata(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    fixtures.write_tiny_llama(
        path, chat_template=None, metadata={"general.name": "other"}, n_ctx=64, n_layer=1
    )
    found = header(path)
    assert "tokenizer.chat_template" not in found
    assert found["general.name"] == "other"
    assert found["llama.context_length"] == 64
    assert found["llama.block_count"] == 1


@pytest.mark.integration
@pytest.mark.parametrize("kind", sorted(CHAT))
def test_greedy_text_depends_on_the_prompt_and_does_not_end(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    CHAT[kind](path)
    model = open_model(path)
    runs = [greedy(model, prompt, 20) for prompt in (b"Hello", b"What is the time?", b"123 words")]
    assert len({tuple(run) for run in runs}) == 3
    assert all(len(run) == 20 and len(set(run)) > 5 for run in runs)
    assert greedy(model, b"Hello", 20) == runs[0]


@pytest.mark.integration
def test_seeds_give_different_models(tmp_path: Path) -> None:
    texts: list[list[int]] = []
    for seed in (0, 1):
        path = tmp_path / f"{seed}.gguf"
        fixtures.write_tiny_llama(path, seed=seed)
        texts.append(greedy(open_model(path), b"Hello", 16))
    assert texts[0] != texts[1]


@pytest.mark.integration
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_embeddings_differ_by_text(pooling: fixtures.Pooling, tmp_path: Path) -> None:
    path = tmp_path / "bert.gguf"
    fixtures.write_tiny_bert(path, pooling=pooling)
    model = open_model(path, embedding=True)
    first, second = model.embed(["hello world", "the mother of the boy"])
    assert len(first) == len(second) == 64
    assert first != second


@pytest.mark.integration
def test_reranker_gives_one_score(tmp_path: Path) -> None:
    path = tmp_path / "rank.gguf"
    fixtures.write_tiny_bert(path, pooling="rank")
    assert header(path)["bert.classifier.output_labels"] == ["score"]
    model = open_model(path, embedding=True)
    scores = [model.embed(text)[0] for text in ("the word", "some other animal")]
    assert scores[0] != scores[1]


def test_a_judge_names_its_outputs(tmp_path: Path) -> None:
    path = tmp_path / "judge.gguf"
    fixtures.write_tiny_judge(path)
    assert header(path)["qwen3.classifier.output_labels"] == ["yes", "no"]
    assert header(path)["qwen3.pooling_type"] == gguf.PoolingType.RANK
