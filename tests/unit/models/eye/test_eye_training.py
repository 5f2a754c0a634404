"""The training of the eye at toy sizes; needs torch and tokenizers, which the product does not."""

# Types of torch are not there in the environment that checks types.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is only there for training (models/recipe/requirements.txt)")
pytest.importorskip(
    "tokenizers", reason="tokenizers is only there for training (models/recipe/requirements.txt)"
)

import torch
import torch.nn.functional as F

from models.recipe.corpus.draw import Draw
from models.recipe.eye.batches import Prompt, Writer, text_batch
from models.recipe.eye.convnet import Eye
from models.recipe.eye.export import export, load_eye
from models.recipe.eye.frozen_text import FrozenText
from models.recipe.eye.plan import EyePlan
from models.recipe.eye.projector_file import EyeShape, write_projector
from models.recipe.eye.scene import draw_scene
from models.recipe.eye.train import STAGES, train
from models.recipe.gguf_file import LlamaShape, write_llama_gguf
from models.recipe.model import TinyLlama, tensors_of
from models.recipe.tokenizer import Encoder, learn_vocabulary
from models.recipe.vocabulary import Vocabulary

pytestmark = pytest.mark.model

SHAPE = LlamaShape(400, 64, 2, 2, 96, 512)
PLAN = EyePlan(
    first_width=8,
    first_blocks=1,
    width=16,
    blocks=1,
    code_steps=3,
    sight_steps=3,
    match_steps=3,
    joint_steps=2,
    sight_batch=8,
    pictures=2,
    questions=2,
    store=16,
)


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return learn_vocabulary(size=400, seed=1, example_count=200)


@pytest.fixture(scope="module")
def text_file(vocabulary: Vocabulary, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.gguf"
    tensors = {name: each.numpy() for name, each in tensors_of(TinyLlama(SHAPE, seed=3)).items()}
    write_llama_gguf(path, SHAPE, vocabulary, tensors, chat_template=None, metadata={}, quantize=False)
    return path


def test_the_frozen_text_model_is_the_one_of_the_file(text_file: Path) -> None:
    text = FrozenText(text_file)
    ids = torch.randint(0, 400, (2, 20), generator=torch.Generator().manual_seed(1))
    ahead = torch.full((20, 20), float("-inf")).triu(1).expand(2, -1, -1)
    hidden = text.hidden(F.embedding(ids, text.embedding), torch.arange(20).expand(2, -1), ahead)
    assert torch.allclose(hidden, TinyLlama(SHAPE, seed=3).hidden(ids), atol=1e-5)


def states_of(
    text: FrozenText, prompts: list[Prompt], rows: torch.Tensor
) -> tuple[torch.Tensor, list[float]]:
    """The hidden state at each learned token, and its id."""
    batch = text_batch(prompts, pad=0)
    states = F.embedding(batch.ids, text.embedding)
    which = (batch.images.long().cumsum(1) - 1) % len(rows)
    states = torch.where(batch.images[..., None], rows[which], states)
    hidden = text.hidden(states, batch.positions, batch.mask)
    return hidden[batch.wanted], batch.targets[batch.wanted].tolist()


@pytest.mark.parametrize("seed", range(6))
def test_questions_in_one_sequence_answer_as_alone(text_file: Path, seed: int) -> None:
    text = FrozenText(text_file)
    writer = Writer(Encoder(text.vocabulary), Draw(f"w{seed}", held_out=False), image_tokens=4, questions=3)
    rows = torch.randn(4, 64, generator=torch.Generator().manual_seed(1))
    together = writer.write(draw_scene(Draw(f"s{seed}", held_out=False), "two"))
    branches = sorted({token.branch for token in together.tokens} - {0})
    alone = [together.only(branch) for branch in branches] or [together]
    hidden, ids = states_of(text, [together], rows)
    parts = [states_of(text, [each], rows) for each in alone]
    assert ids == [number for _, part in parts for number in part]
    assert torch.allclose(hidden, torch.cat([part for part, _ in parts]), atol=1e-5)


def test_stages_run_resume_and_export(text_file: Path, tmp_path: Path) -> None:
    train(PLAN, text_file, tmp_path, resume=False, stages=STAGES[:2])
    first = load_eye(tmp_path)
    trainer = train(PLAN, text_file, tmp_path, resume=True)
    assert trainer.steps == {"codes": 3, "sight": 3, "match": 3, "joint": 2}
    entries = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [entry["stage"] for entry in entries] == list(STAGES)
    name = "v.stage.0.blk.0.pw1.weight"
    assert not torch.equal(first.weight(name), load_eye(tmp_path).weight(name))
    path = tmp_path / "mmproj-a.gguf"
    export(tmp_path, path)
    assert path.stat().st_size > 10_000


def test_the_same_seed_trains_the_same_eye(text_file: Path, tmp_path: Path) -> None:
    eyes = [train(PLAN, text_file, tmp_path / name, resume=False).eye for name in ("a", "b")]
    pixels = torch.zeros(1, 32, 32, 3, dtype=torch.uint8)
    assert torch.equal(eyes[0](pixels), eyes[1](pixels))


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
