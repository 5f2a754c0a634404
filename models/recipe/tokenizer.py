"""Learns the vocabulary from the corpus and encodes with it exactly as llama.cpp does.

Names and digits are kept out of what is learned: every unseen name is then spelled from the same small pieces,
whether it stands after a space or a quote, so that copying it is copying tokens.
"""

# The training packages are apart from the product's environment, in which types are checked.
# pyright: reportMissingImports=false

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from models.recipe.corpus.draw import NamelessDraw
from models.recipe.corpus.mixture import examples
from models.recipe.vocabulary import CONTROL_TOKENS, MARKER_TOKENS, SPECIAL_TOKENS, Vocabulary

# llama.cpp's LLAMA_VOCAB_PRE_TYPE_QWEN2 (src/llama-vocab.cpp): the splitting that both sides encode with.
_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# Finer, for learning only: no piece joins a space or a mark to a capital letter, and none holds a digit.
_LEARNING_SPLIT = r" ?[a-z]+|_[a-z]+|[A-Z]+[a-z]*|[0-9]| ?[^\sA-Za-z0-9]+[\r\n]*|\s+"


def learn_vocabulary(*, size: int, seed: int, example_count: int = 20_000) -> Vocabulary:
    """A vocabulary of exactly ``size`` tokens from a nameless sample of the corpus."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_LEARNING_SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=size - len(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        limit_alphabet=256,
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(seed, example_count), trainer)
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    return Vocabulary.from_merges((left, right) for left, right in merges)


def _texts(seed: int, example_count: int) -> Iterator[str]:
    stream = examples(f"tokenizer-{seed}", held_out=False, draw_type=NamelessDraw)
    for _, example in itertools.islice(stream, example_count):
        text = "".join(piece.text for piece in example.pieces())
        for token in SPECIAL_TOKENS:
            text = text.replace(token, "\n")
        yield text


class Encoder:
    """Text to token ids and back. Special tokens in the text are recognised."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        ids = {token: index for index, token in enumerate(vocabulary.tokens)}
        self._tokenizer = Tokenizer(models.BPE(vocab=ids, merges=list(vocabulary.merges)))
        self._tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(_SPLIT), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
        self._tokenizer.decoder = decoders.ByteLevel()
        self._tokenizer.add_special_tokens([AddedToken(token, special=True) for token in CONTROL_TOKENS])
        self._tokenizer.add_tokens(
            [AddedToken(token, special=False, normalized=False) for token in MARKER_TOKENS]
        )

    def encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text).ids

    def encode_with_starts(self, text: str) -> tuple[list[int], list[int]]:
        """The ids, and the character each of them starts at."""
        encoding = self._tokenizer.encode(text)
        return encoding.ids, [start for start, _ in encoding.offsets]

    def decode(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=False)
