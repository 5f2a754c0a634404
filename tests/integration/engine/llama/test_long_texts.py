"""Texts that are tokenised in parts have the tokens of llama.cpp's own call on the whole text, for every kind."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from jan_serve.engine import tokenizing
from jan_serve.engine.llama import backend
from jan_serve.engine.llama.model import LlamaModel
from jan_serve.engine.llama.vocab import Vocab
from jan_serve.engine.tokenizing import MoreTokens, TextCuts, TextTokenizer, finish
from jan_serve.errors import InvalidRequest
from tests.support.drawn_grid import some
from tests.support.gguf.vocabulary_files import KINDS, SPECIAL, USER, WORDS, VocabularyFile, write_vocabulary

pytestmark = pytest.mark.integration

PUBLISHED = sorted((Path(__file__).parents[5] / "shared" / "data" / "vocab").glob("*.gguf"))
BITS = (
    *WORDS, *SPECIAL, *USER, " ", "  ", "\n", "\r\n", "\t", " \n ", "1", "123", "4567", ",", ".", "'s", "'LL",
    "'", '"', "(", ")", "[", "]", "{", "}", "!", "?", ":", ";", "-", "_", "/", "=", "|", "e\u0301", "।", "。", "😀",
    "مرحبا", "한국", "Ä", "I", "HELLO", "\u00a0", "\u3000", "▁", "ﬁ", "\u1e9e", "a" * 90, " " * 70, "<dna>", "ACGTACGA",
    "</dna>", "<0x0A>", "[SEP]", "[CLS]", "x=1",
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def started() -> None:
    backend.start()


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizing, "PART_BYTES", 48)


def texts(seed: str, count: int) -> Iterator[str]:
    drawn = random.Random(seed)
    for _ in range(count):
        bits = drawn.sample(BITS, drawn.randint(2, len(BITS)))
        yield "".join(drawn.choice(bits) + drawn.choice(("", "", " ")) for _ in range(drawn.randint(1, 120)))


def check(vocab: Vocab, text: str) -> None:
    for parse_special in (True, False):
        for add_special in (True, False):
            work = TextTokenizer(vocab).tokens(text, add_special=add_special, parse_special=parse_special)
            expected = vocab.tokenize(text, add_special=add_special, parse_special=parse_special)
            assert finish(work) == expected, (text, parse_special, add_special)


@pytest.mark.drawn
@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_parts_have_the_tokens_of_the_whole(tmp_path: Path, kind: VocabularyFile) -> None:
    path = tmp_path / "vocabulary.gguf"
    write_vocabulary(path, kind)
    model = LlamaModel(str(path), vocab_only=True)
    for text in some(texts(str(kind), 25), 8):
        check(model.vocab, text)
    model.close()


@pytest.mark.drawn
@pytest.mark.usefixtures("small_parts")
@pytest.mark.skipif(not PUBLISHED, reason="the published vocabularies are not here")
@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.stem)
def test_published_vocabularies(path: Path) -> None:
    model = LlamaModel(str(path), vocab_only=True)
    samples = Path(f"{path}.inp").read_text("utf-8").split("\n__ggml_vocab_test__\n")
    expected = [[int(word) for word in line.split()] for line in Path(f"{path}.out").read_text().splitlines()]
    tokenizer = TextTokenizer(model.vocab)
    for text, ids in zip(samples, expected, strict=False):
        assert finish(tokenizer.tokens(text, parse_special=False)) == ids, text
    for text in ("".join(samples), *some(texts(path.stem, 25), 8)):
        for parse_special in (True, False):
            found = finish(tokenizer.tokens(text, parse_special=parse_special))
            assert found == model.vocab.tokenize(text, add_special=False, parse_special=parse_special)
    model.close()


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vocab]:
    path = tmp_path_factory.mktemp("vocabulary") / "gpt-2.gguf"
    write_vocabulary(path, VocabularyFile("gpt2", "gpt-2"))
    model = LlamaModel(str(path), vocab_only=True)
    yield model.vocab
    model.close()


def parts_of(work: tokenizing.Work[list[int]]) -> int:
    """Turns of others until the work is done."""
    parts = 0
    for future in work:
        parts += 1
        if future is not None:
            future.result()
    return parts


@pytest.mark.parametrize("text", ["<|im_start|>", "hello world ", "字, ", "x\n"])
def test_others_have_a_turn_after_each_part(byte_level: Vocab, text: str) -> None:
    size = 64 * tokenizing.PART_BYTES
    long = text * (size // len(text.encode()))
    assert parts_of(TextTokenizer(byte_level).tokens(long, parse_special=True)) >= 64


@pytest.mark.parametrize("text", ["a", "hello world ", "<|im_start|>", "😀", " "])
def test_a_text_that_cannot_fit_is_not_read(byte_level: Vocab, text: str) -> None:
    longest = TextCuts(byte_level).longest
    assert longest is not None
    long = text * (100 * longest + tokenizing.PART_BYTES)
    work = TextTokenizer(byte_level).tokens(long, parse_special=True, room=99)
    with pytest.raises(MoreTokens) as more:
        parts_of(work)
    assert more.value.at_least > 99


def test_reading_ends_when_there_is_no_more_room(byte_level: Vocab) -> None:
    tokenizer = TextTokenizer(byte_level)
    text = "hello world " * 100_000
    with pytest.raises(MoreTokens) as more:
        finish(tokenizer.tokens(text, parse_special=True, room=100_000))
    assert 100_000 < more.value.at_least < 110_000
    first = finish(tokenizer.first(text, 1000, param="documents"))
    assert first == byte_level.tokenize(text[:12_000], add_special=False, parse_special=False)[:1000]


@pytest.mark.parametrize("letter", ["a", " ", "😀"])
def test_a_stretch_without_a_cut_is_read_aside_up_to_a_limit(byte_level: Vocab, letter: str) -> None:
    tokenizer = TextTokenizer(byte_level)
    text = letter * (40_000 // len(letter.encode()))
    ids = finish(tokenizer.tokens(text + "\nend", parse_special=True))
    assert ids == byte_level.tokenize(text + "\nend", add_special=False, parse_special=True)
    with pytest.raises(InvalidRequest, match=r"text: .* without an end of a word"):
        finish(tokenizer.tokens(text * 30, parse_special=True, param="text"))


def test_a_system_that_refuses_another_priority_keeps_no_text_from_its_tokens(
    byte_level: Vocab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.setpriority", refuse)
    text = "a" * 40_000
    ids = finish(TextTokenizer(byte_level).tokens(text, parse_special=True))
    assert ids == byte_level.tokenize(text, add_special=False, parse_special=True)


def test_words_that_stand_for_any_text_are_not_counted_by_bytes(tmp_path: Path) -> None:
    """BERT drops spaces, and has one token for a word that it does not know."""
    write_vocabulary(tmp_path / "bert.gguf", VocabularyFile("bert"))
    model = LlamaModel(str(tmp_path / "bert.gguf"), vocab_only=True)
    text = "hello" + " " * 100_000 + "world"
    assert len(finish(TextTokenizer(model.vocab).tokens(text, parse_special=True, room=8))) == 2
    model.close()
