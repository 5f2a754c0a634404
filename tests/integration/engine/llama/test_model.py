"""What a loaded file says of itself, and files that are refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jan_serve.core.models.placement import LlamaPlacement
from jan_serve.engine.llama import backend
from jan_serve.engine.llama.model import LlamaModel
from jan_serve.errors import InvalidModel, SettingsError
from jan_serve.resources import builtin_model

pytestmark = pytest.mark.integration

BUILTIN = builtin_model() or Path()


@pytest.fixture(scope="module")
def model() -> Iterator[LlamaModel]:
    backend.start()
    opened = LlamaModel(str(BUILTIN))
    yield opened
    opened.close()


def test_facts_agree_with_the_metadata(model: LlamaModel) -> None:
    metadata = model.metadata()
    arch = model.architecture
    assert arch == metadata["general.architecture"] and arch in model.description
    assert str(model.n_layer) == metadata[f"{arch}.block_count"]
    assert str(model.n_embd) == str(model.n_embd_inp) == metadata[f"{arch}.embedding_length"]
    assert str(model.n_ctx_train) == metadata[f"{arch}.context_length"]
    assert 0 < model.size_bytes <= BUILTIN.stat().st_size
    assert model.n_params > 100_000


def test_the_builtin_model_is_a_plain_one(model: LlamaModel) -> None:
    assert not (
        model.is_recurrent or model.is_diffusion or model.has_encoder or model.has_mrope or model.n_swa
    )
    assert model.default_pooling() == "unspecified"


def test_templates_are_no_metadata(model: LlamaModel) -> None:
    assert "<|im_start|>" in model.chat_templates()["default"]
    assert not any("chat_template" in key for key in model.metadata())


def test_a_reranker_names_its_scores(tiny_reranker: Path) -> None:
    backend.start()
    reranker = LlamaModel(str(tiny_reranker))
    try:
        assert reranker.default_pooling() == "rank"
        assert reranker.n_cls_out >= 1
        assert len(reranker.score_labels()) in (0, reranker.n_cls_out)
    finally:
        reranker.close()


def test_closing_twice_is_harmless() -> None:
    backend.start()
    opened = LlamaModel(str(BUILTIN), vocab_only=True)
    opened.close()
    opened.close()


@pytest.mark.parametrize("kept", [0, 4, 100, 20_000])
def test_a_damaged_file_is_refused(tmp_path: Path, kept: int) -> None:
    backend.start(lambda line: None)
    path = tmp_path / "model.gguf"
    path.write_bytes(BUILTIN.read_bytes()[:kept])
    with pytest.raises(
        InvalidModel, match=r"llama\.cpp cannot load model\.gguf: it is damaged, or of an architecture"
    ):
        LlamaModel(str(path))


def test_an_unknown_device_is_named_with_the_known_ones() -> None:
    backend.start()
    with pytest.raises(SettingsError, match=r"no device 'nowhere'; it has .*CPU"):
        LlamaModel(str(BUILTIN), placement=LlamaPlacement(1, ("nowhere",)))


def test_progress_rises_and_may_end_the_load() -> None:
    backend.start()
    seen: list[float] = []

    def note(fraction: float) -> bool:
        seen.append(fraction)
        return True

    LlamaModel(str(BUILTIN), on_progress=note).close()
    assert seen == sorted(seen) and seen[-1] == 1.0
    with pytest.raises(InvalidModel):
        LlamaModel(str(BUILTIN), on_progress=lambda fraction: False)
