"""Log-probabilities of tokens: parts of characters, special tokens, candidates."""

from __future__ import annotations

import pytest

from jan_serve.core.events import TokenInfo, TokenLogprob
from jan_serve.dialects.openai.completions import LogprobsBuilder, token_text
from jan_serve.dialects.openai.render_common import chat_logprobs


def candidate(number: int, piece: bytes, logprob: float) -> TokenLogprob:
    return TokenLogprob(number, piece, logprob, False)


A = TokenInfo(1, b"a", logprob=-0.5, top=(candidate(2, b"b", -0.1), candidate(1, b"a", -0.5)))
OUTSIDE = TokenInfo(1, b"a", logprob=-3.0, top=(candidate(2, b"b", -0.1),))
EURO = [TokenInfo(3, b"\xe2\x82", logprob=-1.0), TokenInfo(4, b"\xac", logprob=-2.0)]


def test_without_candidates_none_is_added() -> None:
    (entry,) = chat_logprobs([TokenInfo(1, b"a", logprob=-0.5)])["content"] or []
    assert entry["top_logprobs"] == []


def test_tokens_without_a_probability_have_no_entry() -> None:
    assert chat_logprobs([TokenInfo(1, b"a")]) == {"content": [], "refusal": None}


@pytest.mark.parametrize("pieces", [1, 2, 3, 5])
def test_offsets_count_characters_however_the_tokens_come(pieces: int) -> None:
    tokens = [TokenInfo(9, b"<s>", special=True), A, *EURO, TokenInfo(5, b"z", logprob=-0.1)]
    builder = LogprobsBuilder(10)
    offsets: list[int] = []
    names: list[str] = []
    for start in range(0, len(tokens), pieces):
        lists = builder.add(tokens[start : start + pieces])
        offsets += lists["text_offset"]
        names += lists["tokens"]
    assert offsets == [10, 10, 11, 11, 12]
    assert names == ["<s>", "a", "bytes:\\xe2\\x82", "bytes:\\xac", "z"]


def test_candidates_of_completions_include_the_chosen_token() -> None:
    lists = LogprobsBuilder(0).add([TokenInfo(7, b"x"), OUTSIDE])
    assert lists["top_logprobs"] == [None, {"b": -0.1, "a": -3.0}]
    assert lists["token_logprobs"] == [None, -3.0]


def test_different_tokens_have_different_texts() -> None:
    assert token_text("é".encode()) == "é"
    assert token_text(b"\xc3") != token_text(b"\xa9")
