"""What a loaded file says of itself, and files that are refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jan_serve.core.placement import LlamaPlacement
from jan_serve.engine.llama import backend
from jan_serve.engine.llama.model import LlamaModel
from jan_serve.engine.llama.vocab import Vocab
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


BUILTIN_VOCAB = builtin_model() or Path()

TEXTS = [
    "",
    " ",
    "Hello, world!",
    "  two\n\tlines\r\n",
    "日本語 🦜 é",
    "\0\x01",
    "<|im_start|>user\n",
    "x" * 5000,
]


@pytest.fixture(scope="module")
def vocab() -> Iterator[Vocab]:
    backend.start()
    model = LlamaModel(str(BUILTIN_VOCAB), vocab_only=True)
    yield model.vocab
    model.close()


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
@pytest.mark.parametrize("parse_special", [False, True])
def test_texts_come_back(vocab: Vocab, text: str, parse_special: bool) -> None:
    tokens = vocab.tokenize(text, add_special=False, parse_special=parse_special)
    assert all(0 <= token < vocab.n_tokens for token in tokens)
    assert vocab.detokenize(tokens, remove_special=False) == text.encode()
    assert b"".join(vocab.piece(token, special=True) for token in tokens) == text.encode()


def test_a_marker_is_one_token_only_where_it_is_parsed(vocab: Vocab) -> None:
    [token] = vocab.tokenize("<|im_start|>", add_special=False, parse_special=True)
    assert vocab.control_token("<|im_start|>") == token
    assert vocab.is_control(token) and vocab.is_markup(token)
    assert token not in vocab.tokenize("<|im_start|>", add_special=False, parse_special=False)
    assert vocab.piece(token, special=False) == b""
    assert vocab.detokenize([token], remove_special=True) == b""


@pytest.mark.parametrize("text", ["hello", "<|im_start|>user", ""])
def test_other_texts_are_no_control_token(vocab: Vocab, text: str) -> None:
    assert vocab.control_token(text) is None


def test_special_tokens_have_their_text(vocab: Vocab) -> None:
    for role, token in vocab.special.items():
        if role != "nl":
            assert vocab.control_token(token.text) == token.id, role
    assert vocab.bos_id == (vocab.special["bos"].id if "bos" in vocab.special else None)


def test_the_tokens_that_end_an_answer(vocab: Vocab) -> None:
    assert vocab.special["eos"].id in vocab.eog_ids
    assert [token for token in range(vocab.n_tokens) if vocab.is_eog(token)] == list(vocab.eog_ids)


def test_pieces_of_a_range_are_those_of_its_tokens(vocab: Vocab) -> None:
    everything = vocab.pieces()
    assert everything == [vocab.piece(token, special=True) for token in range(vocab.n_tokens)]
    assert vocab.pieces(range(10, 20)) == everything[10:20]


def test_errors_are_captured_during_the_block_only(tmp_path: Path) -> None:
    backend.start()
    path = tmp_path / "empty.gguf"
    path.write_bytes(b"")
    with backend.last_errors() as found, pytest.raises(InvalidModel):
        LlamaModel(str(path))
    assert found
    with backend.last_errors() as nothing:
        pass
    assert nothing == []


def test_the_cpu_is_a_device_found_by_its_name_in_any_case() -> None:
    backend.start()
    devices = backend.devices()
    cpu = next(device for device in devices if device.kind == "cpu")
    assert 0 < cpu.free_bytes <= cpu.total_bytes
    assert backend.device_pointer(cpu.name.lower()) == backend.device_pointer(cpu.name.upper()) is not None
    with pytest.raises(SettingsError, match="ggml has no device 'nowhere'; it has "):
        backend.device_pointer("nowhere")


def test_the_build_says_what_it_is() -> None:
    features = backend.build_features()
    assert features["llama_cpp"] == backend.version()
    assert features["max_parallel_sequences"] >= 64
    assert features["supports_mmap"] in (True, False)
    assert "CPU" in features["system_info"]
