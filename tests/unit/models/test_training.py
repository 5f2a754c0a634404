"""Training code on a model of toy size; needs torch and tokenizers, which the product does not."""

# Types of torch are not there in the environment that checks types.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is only there for training (models/recipe/requirements.txt)")
pytest.importorskip(
    "tokenizers", reason="tokenizers is only there for training (models/recipe/requirements.txt)"
)

import torch

from models.recipe.batches import WeightedIds, grouped, padded, share
from models.recipe.corpus.mixture import examples
from models.recipe.export_gguf import export, load_model
from models.recipe.optimizer import orthogonalised
from models.recipe.plan import Plan
from models.recipe.processes import run_together
from models.recipe.tokenizer import Encoder, learn_vocabulary
from models.recipe.train import Run, Trainer
from models.recipe.vocabulary import Vocabulary

pytestmark = pytest.mark.model

TINY = Plan(vocabulary_size=400, n_embd=32, n_layer=2, n_head=2, n_ff=64, total_tokens=3000, row_tokens=448, step_rows=2)


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return learn_vocabulary(size=400, seed=1, example_count=200)


def test_vocabulary_has_the_size_and_no_digit_in_a_merge(vocabulary: Vocabulary) -> None:
    assert len(vocabulary.tokens) == 400
    assert not any(character.isdigit() for left, right in vocabulary.merges for character in left + right)


def test_text_survives_the_tokenizer(vocabulary: Vocabulary) -> None:
    encoder = Encoder(vocabulary)
    for text in ("Call Ñandú at 12:05!\n<think>\n1 + 1\n</think>", "a  b\t\n\n c <|im_end|>", "日本 😀"):
        assert encoder.decode(encoder.encode(text)) == text
    digits = encoder.encode("2048")
    assert len(digits) == 4


@pytest.mark.parametrize(
    ("lengths", "cost", "sizes"),
    [([5, 5, 5], 1, [3]), ([1, 1, 50], 1, [2, 1]), ([1, 1, 50], 1000, [3]), ([], 1, [])],
)
def test_groups_cost_least(lengths: list[int], cost: int, sizes: list[int]) -> None:
    assert [len(run) for run in grouped(lengths, group_cost=cost)] == sizes


LENGTHS = (33, 59, 59, 117, 120, 117, 211, 254, 251, 309, 451, 33, 40)


def sequences_of(lengths: Sequence[int]) -> list[WeightedIds]:
    return [WeightedIds([number] * length, [1.0] * length) for number, length in enumerate(lengths)]


@pytest.mark.parametrize("parts", [1, 2, 3, 20])
def test_shares_hold_every_sequence_once_and_are_of_like_size(parts: int) -> None:
    shares = [share(sequences_of(LENGTHS), part=part, parts=parts) for part in range(parts)]
    assert sorted(each.ids[0] for taken in shares for each in taken) == list(range(len(LENGTHS)))
    sizes = [sum(len(each.ids) for each in taken) for taken in shares]
    assert max(sizes) - min(sizes) <= max(LENGTHS)


def test_groups_hold_every_id_and_nothing_else_counts() -> None:
    groups = padded(sequences_of(LENGTHS), pad=99, group_cost=50)
    rows = [
        (ids[weights > 0].tolist(), ids[weights == 0])
        for pair in groups
        for ids, weights in zip(*pair, strict=True)
    ]
    assert all((rest == 99).all() for _, rest in rows)
    assert sorted(taken for taken, _ in rows) == [[number] * length for number, length in enumerate(LENGTHS)]


def test_two_processes_take_the_steps_of_one(vocabulary: Vocabulary, tmp_path: Path) -> None:
    logs: list[list[dict[str, float]]] = []
    weights: list[dict[str, torch.Tensor]] = []
    for count in (1, 2):
        run = Run(TINY, tmp_path / str(count), resume=True, save_every=100, log_every=1)
        run.output.mkdir()
        vocabulary.save(run.vocabulary)
        run.prepare()
        run_together(count, run.train)
        logs.append([json.loads(line) for line in (run.output / "log.jsonl").read_text().splitlines()])
        weights.append(torch.load(run.checkpoint, weights_only=True)["average"])
    assert [entry["tokens"] for entry in logs[0]] == [entry["tokens"] for entry in logs[1]]
    assert [e["loss"] for e in logs[0]] == pytest.approx([e["loss"] for e in logs[1]], rel=0.02)
    for name, tensor in weights[0].items():
        assert (tensor - weights[1][name]).abs().max() < 0.05 * tensor.abs().max() + 0.01, name


def test_orthogonalised_steps_have_singular_values_near_one() -> None:
    matrix = torch.randn(48, 32, generator=torch.Generator().manual_seed(1))
    values = torch.linalg.svdvals(orthogonalised(matrix))
    assert values.min() > 0.5 and values.max() < 1.4


def test_loss_falls_and_a_checkpoint_goes_on_where_it_stopped(vocabulary: Vocabulary, tmp_path: Path) -> None:
    # Enough tokens to see for the rate to stay up, and means, since each step has other sequences.
    plan = replace(TINY, total_tokens=60_000)
    trainer = Trainer(plan, vocabulary)
    losses = [trainer.train_step() for _ in range(24)]
    assert sum(losses[-6:]) < 0.98 * sum(losses[:6])
    trainer.save(tmp_path / "checkpoint.pt")
    again = Trainer(plan, vocabulary)
    again.load(tmp_path / "checkpoint.pt")
    assert (again.step, again.seen) == (trainer.step, trainer.seen)
    for (name, tensor), (_, other) in zip(
        trainer.model.named_parameters(), again.model.named_parameters(), strict=True
    ):
        assert torch.equal(tensor, other), name
    # A checkpoint seeds its corpus by the step: the running trainer takes the resumed one's batches.
    trainer.batches = Trainer(TINY, vocabulary).batches
    again.batches = Trainer(TINY, vocabulary).batches
    assert trainer.train_step() == again.train_step()


def test_exported_model_gives_the_logits_of_the_trained_one(vocabulary: Vocabulary, tmp_path: Path) -> None:
    llama_cpp: Any = pytest.importorskip("llama_cpp", reason="comparing logits needs llama-cpp-python")
    vocabulary.save(tmp_path / "vocabulary.json")
    run = Run(replace(TINY, total_tokens=2000), tmp_path, resume=True, save_every=1, log_every=1)
    run.prepare()
    run.train()
    export(tmp_path, tmp_path / "model.gguf")
    model, kept = load_model(tmp_path)
    encoder = Encoder(kept)
    llama = llama_cpp.Llama(str(tmp_path / "model.gguf"), n_ctx=512, n_threads=1, verbose=False)
    for _, example in islice(examples(2, held_out=True), 5):
        text = example.prompt()
        ids = encoder.encode(text)
        assert llama.tokenize(text.encode(), add_bos=False, special=True) == ids
        with torch.no_grad():
            wanted = model(torch.tensor([ids]))[0, -1]
        llama.reset()
        llama.eval(ids)
        found = torch.tensor(llama_cpp.llama_get_logits_ith(llama.ctx, -1)[: len(kept.tokens)])
        assert (found - wanted).abs().max() < 0.1 * wanted.std() + 0.05
