"""GrammarExecutor over a small vocabulary with longer tokens and two ends of generation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jan_serve.engine.constraint.grammar_executor import GrammarExecutor, kept_logits
from jan_serve.engine.constraint.token_tables import TokenTables
from jan_serve.errors import GrammarTooComplex, InvalidGrammar
from tests.unit.engine.greedy_vocab import GreedyVocab

PIECES = ("<s>", "</s>", "<eot>", "<s", "<", "s", ">", "a", "b", "c", "ab", "1", ",")
ENDS = {"</s>", "<eot>"}
TEXTS = PIECES[3:]


VOCAB = GreedyVocab(TEXTS, {"bos": "<s>", "eos": "</s>", "eot": "<eot>"}, eog=("eos", "eot"))


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return TokenTables(VOCAB).tokenizer()


def write(executor: GrammarExecutor, *pieces: str) -> None:
    for piece in pieces:
        token = PIECES.index(piece)
        assert executor.allows(token), piece
        executor.accept(token)


def allowed(executor: GrammarExecutor) -> set[str]:
    return {piece for token, piece in enumerate(PIECES) if executor.allows(token)}


def masked(executor: GrammarExecutor) -> set[str]:
    """The tokens that the mask leaves, with their logits."""
    logits = np.arange(len(PIECES), dtype=np.float32)
    result = executor.mask(logits)
    left = np.isfinite(result)
    assert (result[left] == logits[left]).all()
    return {piece for piece, is_left in zip(PIECES, left, strict=True) if is_left}


@pytest.mark.parametrize(
    ("lark", "written", "nexts"),
    [
        ('start: "a" ("b" | "c")', [], {"a", "ab"}),
        ('start: "a" ("b" | "c")', ["a"], {"b", "c"}),
        ('start: "a" ("b" | "c")', ["ab"], ENDS),
        ("start: /[a-c]*/", [], {"a", "b", "c", "ab"} | ENDS),
        ('start: ("a" | "1") ("," ("a" | "1"))*', ["a", ","], {"a", "1"}),
        ('start: ("a" | "1") ("," ("a" | "1"))*', ["a", ",", "1"], {","} | ENDS),
        ('start: <[0]> ("a" | "b")', [], {"<s>"}),
        ('start: <[0]> ("a" | "b")', ["<s>"], {"a", "b"}),
        ('start: ""', [], ENDS),
    ],
)
def test_the_mask_and_single_tokens_agree(
    tokenizer: Any, lark: str, written: list[str], nexts: set[str]
) -> None:
    executor = GrammarExecutor(tokenizer, lark + "\n", VOCAB)
    write(executor, *written)
    assert allowed(executor) == nexts
    assert masked(executor) == nexts


def test_a_control_token_never_writes_its_text(tokenizer: Any) -> None:
    """Readers would not see it."""
    executor = GrammarExecutor(tokenizer, 'start: "<s>" ("a" | "b")\n', VOCAB)
    assert "<s>" not in allowed(executor) | masked(executor)
    write(executor, "<s", ">")
    assert masked(executor) == {"a", "b"}


def test_every_end_of_generation_ends_a_complete_text(tokenizer: Any) -> None:
    for end in VOCAB.eog_ids:
        executor = GrammarExecutor(tokenizer, "start: /a+/\n", VOCAB)
        assert not executor.allows(end)
        write(executor, "a")
        assert executor.allows(end)
        executor.accept(end)
        assert masked(executor) == {"a"} | ENDS, "the matcher has not seen it"


@pytest.mark.parametrize(
    ("lark", "pieces", "nexts"),
    [
        ('start: "abc" ("1" | ",")', ["ab", "c"], {"1", ","}),
        ('start: <[0]> "s>" ("1" | ",")', ["<s>", "s", ">"], {"1", ","}),
        ('start: "ab"', ["ab"], ENDS),
        ('start: "a" | "b"', [], {"a", "b"}),
    ],
)
def test_forced_tokens_are_those_of_the_vocabulary(
    tokenizer: Any, lark: str, pieces: list[str], nexts: set[str]
) -> None:
    executor = GrammarExecutor(tokenizer, lark + "\n", VOCAB)
    assert [PIECES[token] for token in executor.forced()] == pieces
    assert masked(executor) == nexts


@pytest.mark.parametrize(
    ("lark", "reason"),
    [
        ("start: missing\n", 'unknown name: "missing"'),
        ("start: /(/\n", "invalid regex"),
        ("start", "Expected token"),
        ("", "Empty grammar"),
    ],
)
def test_a_grammar_that_cannot_be_compiled(tokenizer: Any, lark: str, reason: str) -> None:
    with pytest.raises(InvalidGrammar, match=f"the grammar cannot be compiled: .*{reason}") as refused:
        GrammarExecutor(tokenizer, lark, VOCAB)
    assert "\n" not in refused.value.message and len(refused.value.message) < 250


def test_a_grammar_that_takes_too_long_to_compile_is_refused_as_too_complex(tokenizer: Any) -> None:
    numbers = range(66_000)  # symbols are counted in 16 bits
    lark = "".join(f'r{number}: "a"\n' for number in numbers)
    lark += "start: " + " | ".join(f"r{number}" for number in numbers) + "\n"
    with pytest.raises(GrammarTooComplex, match="the grammar is too large"):
        GrammarExecutor(tokenizer, lark, VOCAB)


def test_a_grammar_with_too_many_parses_at_once_is_a_request_at_fault(tokenizer: Any) -> None:
    executor = GrammarExecutor(tokenizer, "start: " + '"a"? ' * 2000 + "\n", VOCAB)
    with pytest.raises(GrammarTooComplex, match="more parses at once than the limit") as refused:
        executor.accept(PIECES.index("a"))
    assert refused.value.param == "grammar"
    with pytest.raises(GrammarTooComplex, match="more parses at once than the limit"):
        executor.mask(np.zeros(len(PIECES), np.float32))
    assert not executor.is_complete


def test_a_mask_keeps_the_logits_of_its_tokens_alone() -> None:
    random = np.random.default_rng(3)
    for n_tokens in (31, 32, 1_000, 20_001):
        logits = random.standard_normal(n_tokens).astype(np.float32)
        for share in (0.0, 0.001, 0.2, 1.0):
            allowed = random.random(n_tokens) < share
            packed = np.packbits(allowed, bitorder="little")
            bits = np.zeros((n_tokens + 31) // 32, np.int32)
            bits.view(np.uint8)[: len(packed)] = packed
            logits[:8] = [-np.inf, -0.0, 1e38, -1e38, 0.0, np.inf, np.nan, -np.inf]
            allowed[6], bits.view(np.uint8)[0] = False, bits.view(np.uint8)[0] & 0xBF
            expected = np.where(allowed, logits, np.float32(-np.inf))
            assert np.array_equal(kept_logits(bits, logits), expected)
            bits.view(np.uint8)[0] |= 0x40
            assert kept_logits(bits, logits)[6] == np.inf, "NaN is refused, as infinity is"
