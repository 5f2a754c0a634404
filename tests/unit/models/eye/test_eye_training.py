"""The training of the eye at toy sizes; needs torch and tokenizers, which the product does not."""

# Types of torch are not there in the environment that checks types.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import itertools
import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is only there for training (models/recipe/requirements.txt)")
pytest.importorskip(
    "tokenizers", reason="tokenizers is only there for training (models/recipe/requirements.txt)"
)

import torch

from models.recipe.chat_template import THINK_LINE
from models.recipe.corpus.draw import Draw
from models.recipe.eye import reading
from models.recipe.eye.__main__ import teach
from models.recipe.eye.attributes import SIZES, attributes_of
from models.recipe.eye.batches import LikeLengths, Prompt, Writer, text_batch
from models.recipe.eye.convnet import Eye
from models.recipe.eye.export import export_projector, export_text, load_eye
from models.recipe.eye.plan import EyePlan
from models.recipe.eye.projector_file import EyeShape, write_projector
from models.recipe.eye.questions import ROWS
from models.recipe.eye.reading import Reader
from models.recipe.eye.rows import (
    attributes_of_cells,
    disturbed_rows,
    rows_of,
    scores_of,
    values_of,
    vectors_of,
)
from models.recipe.eye.scene import draw_scene
from models.recipe.eye.text_model import TextModel, read_plainly
from models.recipe.gguf_file import LlamaShape, write_llama_gguf
from models.recipe.model import TinyLlama, tensors_of
from models.recipe.tokenizer import Encoder, learn_vocabulary
from models.recipe.vocabulary import THINK_START, Vocabulary

pytestmark = pytest.mark.model

SHAPE = LlamaShape(400, 64, 2, 2, 96, 512)
PLAN = EyePlan(
    first_width=8,
    first_blocks=1,
    width=16,
    blocks=1,
    reading_steps=2,
    reading_scenes=2,
    reading_questions=2,
    replay_rows=2,
    settle_steps=1,
    settle_rows=3,
    sight_steps=3,
    project_steps=3,
    match_steps=3,
    sight_batch=8,
    store=16,
    warmup_steps=1,
)


CAUSAL = torch.full((1, 20, 20), float("-inf")).triu(1)


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return learn_vocabulary(size=400, seed=1, example_count=200)


@pytest.fixture(scope="module")
def text_file(vocabulary: Vocabulary, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.gguf"
    tensors = {name: each.numpy() for name, each in tensors_of(TinyLlama(SHAPE, seed=3)).items()}
    write_llama_gguf(path, SHAPE, vocabulary, tensors, chat_template=None, metadata={}, quantize=False)
    return path


def test_the_text_model_is_the_one_of_the_file(text_file: Path) -> None:
    text = TextModel(text_file)
    ids = torch.randint(0, 400, (2, 20), generator=torch.Generator().manual_seed(1))
    original = TinyLlama(SHAPE, seed=3)
    assert torch.allclose(read_plainly(text, ids, CAUSAL), original.hidden(ids), atol=1e-5)
    written = text.tensors()
    assert {name: each.shape for name, each in written.items()} == SHAPE.tensor_shapes()
    assert all(np.array_equal(written[name], each.numpy()) for name, each in tensors_of(original).items())


def test_rows_tell_each_attribute_after_either_neighbour(text_file: Path) -> None:
    vectors = vectors_of(TextModel(text_file), seed=1)
    scenes = [draw_scene(Draw(f"r{seed}", held_out=False), "two") for seed in range(2)]
    attributes = torch.tensor([attributes_of(scene) for scene in scenes])
    rows = rows_of(vectors, attributes, 64)
    assert rows.shape == (2, 64, 64)
    cells = attributes_of_cells(64).tolist()
    assert set(itertools.pairwise(cells)) >= {
        pair for index in range(len(SIZES) - 1) for pair in ((index, index + 1), (index + 1, index))
    }
    for first, second, index in zip(rows[0], rows[1], cells, strict=True):
        assert torch.equal(first, second) == bool(attributes[0, index] == attributes[1, index])


def test_values_are_told_from_rows(text_file: Path) -> None:
    vectors = vectors_of(TextModel(text_file), seed=1)
    attributes = torch.tensor([attributes_of(draw_scene(Draw("d", held_out=False)))] * 50)
    torch.manual_seed(1)
    for rows in (
        rows_of(vectors, attributes, 64),
        disturbed_rows(vectors, attributes, 64, others=0.4, noise=0.4),
    ):
        nearest = [scores.argmax(-1) for scores in scores_of(vectors, values_of(rows))]
        assert torch.equal(torch.stack(nearest, 1), attributes)


def states_of(text: TextModel, prompts: list[Prompt], rows: torch.Tensor) -> tuple[torch.Tensor, list[float]]:
    """The hidden state at each learned token, and its id."""
    batch = text_batch(prompts, pad=0)
    states = text.embedded(batch.ids)
    which = (batch.images.long().cumsum(1) - 1) % len(rows)
    states = torch.where(batch.images[..., None], rows[which], states)
    hidden = text.hidden(states, batch.positions, batch.mask)
    return hidden[batch.wanted], batch.targets[batch.wanted].tolist()


def test_processes_read_their_own_pictures_and_stay_equal(text_file: Path, tmp_path: Path) -> None:
    weights: list[dict[str, torch.Tensor]] = []
    for count in (1, 2):
        folder = tmp_path / str(count)
        reading.train(PLAN, text_file, folder, resume=False, processes=count)
        weights.append(torch.load(folder / "reading.pt", weights_only=True)["weights"])
    assert len((tmp_path / "2" / "reading.jsonl").read_text().splitlines()) == 1
    assert any(not torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


@pytest.mark.parametrize("seed", range(6))
def test_questions_in_one_sequence_answer_as_alone(text_file: Path, seed: int) -> None:
    text = TextModel(text_file)
    writer = Writer(Encoder(text.vocabulary), Draw(f"w{seed}", held_out=False), image_tokens=4, questions=3)
    rows = torch.randn(4, 64, generator=torch.Generator().manual_seed(1))
    together = writer.write(draw_scene(Draw(f"s{seed}", held_out=False), "two"))
    branches = sorted({token.branch for token in together.tokens} - {0})
    alone = [together.only(branch) for branch in branches] or [together]
    hidden, ids = states_of(text, [together], rows)
    parts = [states_of(text, [each], rows) for each in alone]
    assert ids == [number for _, part in parts for number in part]
    assert torch.allclose(hidden, torch.cat([part for part, _ in parts]), atol=1e-5)


def test_prompts_of_a_step_have_like_lengths(text_file: Path) -> None:
    encoder = Encoder(TextModel(text_file).vocabulary)
    draw = Draw("lengths", held_out=False)
    steps = LikeLengths(
        draw, Writer(encoder, draw, image_tokens=64, questions=4), half=2, order=random.Random(1)
    )
    taken = [next(steps) for _ in range(32)]
    assert {len(step) for step in taken} == {4}
    assert sum(scene.kind == "two" for step in taken for scene, _ in step) >= 64
    lengths = [[len(prompt.tokens) for _, prompt in step] for step in taken]
    padded = sum(max(step) * len(step) for step in lengths)
    assert sum(map(sum, lengths)) > 0.97 * padded
    assert [max(step) for step in lengths] != sorted(max(step) for step in lengths)


def test_what_thinks_is_asked_to_think(text_file: Path) -> None:
    text = TextModel(text_file)
    draw = Draw("thinking", held_out=False)
    writer = Writer(Encoder(text.vocabulary), draw, image_tokens=4, questions=2)
    think, line = text.vocabulary.id_of(THINK_START), Encoder(text.vocabulary).encode(THINK_LINE)
    seen = set()
    for _ in range(40):
        tokens = writer.write(draw_scene(draw)).tokens
        opening = [token.id for token in tokens if token.branch == 0 and not token.learned]
        is_asked = any(opening[start : start + len(line)] == line for start in range(len(opening)))
        branches = {token.branch for token in tokens if token.learned}
        thoughts = {(token.branch, token.id == think) for token in tokens if token.learned}
        assert {branch for branch, is_thought in thoughts if is_thought} == (branches if is_asked else set())
        seen.add(is_asked)
    assert seen == {True, False}


def test_it_trains_resumes_and_is_written(text_file: Path, tmp_path: Path) -> None:
    teach(PLAN, text_file, tmp_path, resume=False)
    first = load_eye(tmp_path)
    longer = replace(PLAN, reading_steps=3, sight_steps=4, match_steps=4)
    teach(longer, text_file, tmp_path, resume=True)
    read = [json.loads(line)["step"] for line in (tmp_path / "reading.jsonl").read_text().splitlines()]
    seen = [json.loads(line) for line in (tmp_path / "eye.jsonl").read_text().splitlines()]
    assert read == [3, 4]
    assert [(entry["stage"], entry["step"]) for entry in seen] == [
        ("sight", 3), ("project", 3), ("match", 3), ("sight", 4), ("match", 4),
    ]  # fmt: skip
    name = "v.stage.0.blk.0.pw1.weight"
    assert not torch.equal(first.weight(name), load_eye(tmp_path).weight(name))
    export_text([tmp_path], text_file, tmp_path / "text.gguf", share=1.0)
    export_projector(tmp_path, tmp_path / "mmproj.gguf")
    assert (tmp_path / "mmproj.gguf").stat().st_size > 10_000
    before, after = (TextModel(path).tensors() for path in (text_file, tmp_path / "text.gguf"))
    changed = {key for key in before if not np.allclose(before[key], after[key], atol=1e-3)}
    assert "token_embd.weight" not in changed
    assert any("ffn_up" in key for key in changed)
    with pytest.raises(ValueError, match="another text model"):
        Reader(longer, tmp_path / "text.gguf").load(tmp_path / "reading.pt")


def test_what_is_written_lies_between_the_text_model_and_the_mean_of_the_readings(
    text_file: Path, tmp_path: Path
) -> None:
    text = TextModel(text_file)
    before = text.learned()
    for name, step in (("one", 1.0), ("other", 3.0)):
        (tmp_path / name).mkdir()
        weights = {key: weight + step for key, weight in before.items()}
        torch.save({"weights": weights}, tmp_path / name / "reading.pt")
    export_text([tmp_path / "one", tmp_path / "other"], text_file, tmp_path / "text.gguf", share=0.25)
    after = TextModel(tmp_path / "text.gguf").learned()
    assert all(torch.allclose(after[key], before[key] + 0.5, atol=0.02) for key in before)


def test_the_text_model_learns_to_read_and_is_held_to_what_it_was(text_file: Path) -> None:
    reader = Reader(replace(PLAN, reading_steps=60, reading_rate=2e-2), text_file)
    figures = [reader.train_step() for _ in range(12)]
    assert figures[0]["away"] == pytest.approx(0, abs=1e-4)
    assert figures[-1]["away"] > 0
    assert figures[-1]["loss"] < figures[0]["loss"] - 0.1
    shares = reader.held_out(count=2, seed="test")
    assert set(shares) == {row[0] for row in ROWS}
    assert all(0 <= share <= 1 for share in shares.values())


def test_the_encoder_is_the_one_that_libmtmd_runs(text_file: Path, tmp_path: Path) -> None:
    """GELU comes from a table of half floats there, so that rows of about 1 differ in the third digit."""
    pytest.importorskip("llama_cpp", reason="needs llama-cpp-python beside torch")
    from models.recipe.eye.seeing import SeeingModel

    eye = Eye(EyeShape(widths=(16, 24), blocks=(1, 2), n_text=64), seed=1)
    with torch.no_grad():
        for name, parameter in eye.named_parameters():
            if name.endswith("bias") or "grn" in name:
                parameter.normal_(0, 0.1, generator=torch.Generator().manual_seed(1))
    tensors = {name: eye.weight(name).detach().numpy() for name in eye.shape.tensor_shapes()}
    write_projector(tmp_path / "mmproj.gguf", eye.shape, tensors, metadata={}, half=False)
    pixels = np.random.default_rng(1).integers(0, 256, (32, 32, 3), np.uint8)
    model = SeeingModel(text_file, tmp_path / "mmproj.gguf")
    try:
        theirs = model.embedding(pixels)
    finally:
        model.close()
    ours = eye(torch.from_numpy(pixels)[None])[0].detach().numpy()
    assert np.abs(ours - theirs).max() < 4e-3 * ours.std()
