"""Training code on a model of toy size; needs torch and tokenizers, which the product does not."""

# Types of torch are not there in the environment that checks types.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import json
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

from models.recipe.batches import Batches, WeightedIds, packed, tokens_of, weight_of
from models.recipe.corpus.mixture import examples
from models.recipe.export_gguf import export, load_model
from models.recipe.gguf_file import LlamaShape
from models.recipe.model import Rotation, TinyLlama, in_halves
from models.recipe.optimizer import orthogonalised
from models.recipe.plan import Plan
from models.recipe.processes import run_together
from models.recipe.tokenizer import Encoder, learn_vocabulary
from models.recipe.train import Run, Trainer
from models.recipe.vocabulary import Vocabulary

pytestmark = pytest.mark.model

TINY = Plan(
    vocabulary_size=400,
    n_embd=32,
    n_layer=2,
    n_head=2,
    n_ff=64,
    total_tokens=3000,
    row_tokens=448,
    step_rows=2,
)


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


def batches_of(plan: Plan, vocabulary: Vocabulary) -> Batches:
    return Batches(plan, Encoder(vocabulary), examples("rows", held_out=False))


def test_rows_are_full_and_hold_every_sequence_once(vocabulary: Vocabulary) -> None:
    plan = replace(TINY, row_tokens=512, step_rows=8)
    rows = batches_of(plan, vocabulary)
    steps = [next(rows) for _ in range(4)]
    assert all(len(step) == 8 for step in steps)
    assert all(tokens_of([row]) <= 512 or len(row) == 1 for step in steps for row in step)
    assert sum(tokens_of(step) for step in steps) > 0.95 * 4 * 8 * 512
    alone = batches_of(replace(plan, step_rows=80), vocabulary)
    known = [sequence.ids for row in next(alone) for sequence in row]
    found = [sequence.ids for step in steps for row in step for sequence in row]
    assert all(found.count(ids) <= known.count(ids) for ids in found)


def test_a_sequence_that_is_longer_than_a_row_has_its_own(vocabulary: Vocabulary) -> None:
    rows = batches_of(replace(TINY, row_tokens=8, step_rows=4), vocabulary)
    for _ in range(3):
        assert [len(row) for row in next(rows)] == [1, 1, 1, 1]


def sequence_of(start: int, length: int) -> WeightedIds:
    return WeightedIds(list(range(start, start + length)), [1.0, *[0.5] * (length - 1)])


ROWS = [[sequence_of(10, 3), sequence_of(20, 4)], [sequence_of(30, 5)]]


def test_packed_rows_predict_the_next_id_of_each_sequence() -> None:
    rows = packed(ROWS, pad=99)
    assert rows.ids.tolist() == [[10, 11, 12, 20, 21, 22, 23], [30, 31, 32, 33, 34, 99, 99]]
    assert rows.wanted.int().tolist() == [[1, 1, 0, 1, 1, 1, 0], [1, 1, 1, 1, 0, 0, 0]]
    assert (rows.targets - rows.ids)[rows.wanted].tolist() == [1] * 9
    assert float(rows.weights.sum()) == weight_of(ROWS) == 4.5
    assert packed(ROWS, pad=99, length=9).ids.shape == (2, 9)


def test_packed_sequences_say_what_they_say_alone() -> None:
    model = TinyLlama(LlamaShape(64, 32, 2, 2, 64, 128), seed=1)
    rows = packed(ROWS, pad=0, length=12)
    hidden = model.hidden(rows.ids, mask=rows.mask)
    wanted = model.hidden(rows.ids, mask=rows.mask, wanted=rows.wanted)
    assert torch.allclose(wanted, hidden[rows.wanted], atol=1e-6)
    alone = [model.hidden(torch.tensor([sequence.ids]))[0, :-1] for row in ROWS for sequence in row]
    assert torch.allclose(wanted, torch.cat(alone), atol=1e-5)


@pytest.mark.parametrize("length", [1, 2, 7])
def test_attention_in_halves_is_that_of_the_whole(length: int) -> None:
    queries, keys, values = torch.randn(3, 2, length, 8, generator=torch.Generator().manual_seed(1))
    hidden = torch.full((length, length), float("-inf")).triu(1)

    def attend(ours: slice, theirs: slice) -> torch.Tensor:
        scores = queries[:, ours] @ keys[:, theirs].transpose(1, 2) + hidden[ours, theirs]
        return scores.softmax(-1) @ values[:, theirs]

    everything = slice(0, length)
    assert torch.allclose(in_halves(attend, length), attend(everything, everything), atol=1e-6)


def test_the_gradient_of_a_rotation_is_that_of_its_formula() -> None:
    angles = torch.arange(10.0, dtype=torch.float64).view(5, 2)
    heads = torch.randn(2, 3, 5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    heads.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: Rotation.apply(x, angles.cos(), angles.sin()), (heads,))


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
    plan = replace(TINY, total_tokens=105_000)
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
