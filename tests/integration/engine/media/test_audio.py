"""Sound through a real projector: the same logits as libmtmd's helper, and nothing computed twice."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from jan_serve.core.messages import AudioPiece
from jan_serve.errors import InvalidRequest, UnsupportedContent
from models.recipe.fixtures import write_tiny_llama
from models.recipe.projector_fixtures import (
    write_tiny_conformer,
    write_tiny_hearing_projector,
    write_tiny_projector,
)
from tests.integration.engine.media.images import picture
from tests.integration.engine.media.mtmd_reference import helper_logprobs
from tests.support.engine.worker import Worker, generate, running_worker
from tests.support.gguf.models import EXACT
from tests.support.media.sounds import heard

pytestmark = pytest.mark.integration

CELLS = 15
"""Cells that sound of up to 30 seconds takes."""
SETTINGS: dict[str, Any] = {"n_ctx": 1024, "parallel": 4, **EXACT}
START, END = "<|im_start|>user\nwhat do you hear?", "<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("hearing")
    text, projector = folder / "llama.gguf", folder / "mmproj-ear.gguf"
    write_tiny_llama(text, quantize=False)
    write_tiny_hearing_projector(projector)
    return text, projector


@pytest.fixture(scope="module")
def hearing(files: tuple[Path, Path]) -> Generator[Worker]:
    with running_worker(files[0], projector=str(files[1]), **SETTINGS) as worker:
        yield worker


def test_logits_equal_those_of_the_helper_alone_and_beside_others(
    hearing: Worker, files: tuple[Path, Path]
) -> None:
    low, high = heard(300), heard(900, seconds=31.0)
    prompts: list[tuple[str | AudioPiece, ...]] = [(START, low, END), ("a ", high, " b ", low, END)]
    alone = hearing.run_one(prompts[0], logprobs=20, max_tokens=1)
    requests = [generate(prompt, logprobs=20, max_tokens=1, cache_salt="beside") for prompt in prompts]
    hearing.run(generate("some text of another", max_tokens=20, ignore_eos=True), *requests)
    found = [alone, *(hearing.results[request.id] for request in requests)]
    for result, prompt in zip(found, [prompts[0], *prompts], strict=True):
        expected = helper_logprobs(*files, prompt)
        tops = {top.id: top.logprob for top in result.choice.tokens[0].top}
        assert len(tops) == 20
        assert max(abs(expected[token] - logprob) for token, logprob in tops.items()) <= 1e-4


def test_a_second_turn_encodes_nothing_and_other_sounds_share_nothing(hearing: Worker) -> None:
    sound = heard(450)
    first = hearing.run_one((START, sound, END), max_tokens=6, ignore_eos=True)
    before = hearing.stats().media_encoded_total
    again = hearing.run_one((START, sound, END + first.text + "and now?"), max_tokens=1)
    assert hearing.stats().media_encoded_total == before
    assert again.usage.cached_tokens >= CELLS
    other = hearing.run_one((START, heard(460), END), max_tokens=1)
    assert other.usage.cached_tokens < CELLS
    assert hearing.stats().media_encoded_total == before + 1


def test_sounds_are_counted_without_samples(hearing: Worker) -> None:
    bare = hearing.count(START, END)
    assert hearing.count(START, AudioPiece(digest="x", frames=16_000), END) == bare + CELLS
    assert hearing.count(START, AudioPiece(digest="x", frames=61 * 16_000), END) == bare + 3 * CELLS
    assert isinstance(hearing.run_one((START, picture(), END)).error, UnsupportedContent)


def test_a_model_that_only_sees_refuses_sound(files: tuple[Path, Path], tmp_path: Path) -> None:
    write_tiny_projector(tmp_path / "mmproj.gguf", "mlp")
    with running_worker(files[0], projector=str(tmp_path / "mmproj.gguf"), **SETTINGS) as worker:
        error = worker.run_one((START, heard(300), END)).error
    assert isinstance(error, UnsupportedContent) and "cannot hear" in error.message


def test_a_sound_beyond_the_positions_of_its_encoder_is_refused(
    files: tuple[Path, Path], tmp_path: Path
) -> None:
    """A conformer reads a sound as a whole: this one has positions for 30 seconds, and asserts them."""
    projector = tmp_path / "mmproj-conformer.gguf"
    write_tiny_conformer(projector)
    with running_worker(files[0], projector=str(projector), **SETTINGS) as worker:
        error = worker.run_one((START, heard(300, seconds=31.0), END), max_tokens=1).error
        assert isinstance(error, InvalidRequest)
        assert "the sound lasts 31 s, and this model hears 30 s" in error.message
        assert (
            worker.run_one((START, heard(300, seconds=30.0), END), max_tokens=1).usage.completion_tokens == 1
        )
