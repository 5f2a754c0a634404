"""Options of a vocabulary that changes what it writes: they count as they are, or are refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from jan_serve.engine.scoring.option_job import OptionJob
from jan_serve.engine.scoring.scoring_intake import MAX_OPTION_BYTES, ScoringIntake
from jan_serve.errors import InvalidRequest, UnsupportedOperation
from jan_serve.ipc.scoring import OptionQuestion, RankRequest, WeighOptions

PIECES = (b"<s>", b" yes", b"yes", b" no", b"no", b" Yes", b" ", *(bytes([byte]) for byte in range(97, 123)))
BOS = 0


class SpacingVocab:
    """Writes a space before each word, as SentencePiece's vocabularies do; knows whole words and small letters."""

    n_tokens = len(PIECES)
    bos_id = BOS
    add_bos = True

    def __init__(self, *, lowers: bool = False) -> None:
        self._lowers = lowers

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        ids: list[int] = []
        rest = b" " + (text.lower() if self._lowers else text).encode()
        while rest:
            piece = max((piece for piece in PIECES[1:] if rest.startswith(piece)), key=len, default=None)
            if piece is not None:
                ids.append(PIECES.index(piece))
            rest = rest[len(piece or b"?") :]
        return ids

    def piece(self, token: int, *, special: bool) -> bytes:
        return PIECES[token]

    def pieces(self) -> list[bytes]:
        return list(PIECES)

    def is_control(self, token: int) -> bool:
        return token == BOS


def intake(*, generates: bool = True, **vocab: Any) -> ScoringIntake:
    fake: Any = SpacingVocab(**vocab)
    return ScoringIntake(fake, n_ctx=64, has_head=False, generates=generates)


def asked(*options: str) -> WeighOptions:
    question = OptionQuestion(((1, 2, 3),), options)
    return WeighOptions(id=1, shared=(), questions=(question,))


def test_an_option_counts_with_and_without_the_space_that_the_vocabulary_adds() -> None:
    job = intake().weigh(asked("yes", "no"))
    assert job.questions[0].row == [BOS, 1, 2, 3]
    tree = job.questions[0].tree
    while paths := tree.next_paths(8):
        for path in paths:
            for beginning in tree.missing(path):
                tree.add_logits(beginning, np.zeros(len(PIECES), np.float32))
    (yes, _), is_exact = tree.result()
    each = 1 / len(PIECES)
    # "yes" and " yes" as one token; " " and "yes"; y, e, s; and " ", y, e, s.
    assert is_exact and tree.counts[0] == 5
    assert math.exp(yes) == pytest.approx(2 * each + each**2 + each**3 + each**4)


REFUSED: dict[str, tuple[dict[str, Any], tuple[str, ...], str]] = {
    "letters that the vocabulary lowers": ({"lowers": True}, ("Yes", "no"), "cannot write 'Yes', but ' yes'"),
    "letters that it does not know": ({}, ("oui!", "no"), "cannot write 'oui!', but ' oui'"),
    "two options that become one": ({}, ("yes", " yes"), "differs from another one by a space"),
    "too many bytes": ({}, ("y" * (MAX_OPTION_BYTES + 1), "no"), "the limit is 512"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_vocabulary_cannot_write_is_refused(case: str) -> None:
    vocab, options, words = REFUSED[case]
    with pytest.raises(InvalidRequest, match=words) as error:
        intake(**vocab).weigh(asked(*options))
    assert error.value.param == "options"


def test_a_model_without_a_head_is_judged_by_its_words_or_refused() -> None:
    rank = RankRequest(
        id=1, query="a", documents=("b", "c"), template="{query} {document}", labels=("yes", "no")
    )
    job = intake().rank(rank)
    assert isinstance(job, OptionJob) and len(job.questions) == 2
    with pytest.raises(UnsupportedOperation, match="does not write text"):
        intake(generates=False).rank(rank)
