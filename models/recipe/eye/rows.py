"""The rows that stand for a scene: what the text model learns to read, and the eye to give.

The cells of a picture stand in lines. Each line tells one attribute of the scene, by the vector of its value. The
vectors are chosen beforehand, so that both can be learned at once, and made of the text model's own tokens, which it
copies already.
"""

# The training packages are apart from the product's environment, in which types are checked.
# pyright: reportMissingImports=false

from __future__ import annotations

import torch
from torch import Tensor

from models.recipe.eye.attributes import SIZES, VALUES
from models.recipe.eye.text_model import TextModel
from models.recipe.tokenizer import Encoder

_STARTS = [sum(SIZES[:index]) for index in range(len(SIZES))]


def vectors_of(text: TextModel, *, seed: int) -> Tensor:
    """One for each value of each attribute: the sum of its tokens, with a mark of the attribute and some noise."""
    generator = torch.Generator().manual_seed(seed)
    encode = Encoder(text.vocabulary).encode
    spread = float(text.embedding.std())
    vectors = torch.randn(sum(SIZES), text.shape.n_embd, generator=generator) * 0.3 * spread
    for start, size, values in zip(_STARTS, SIZES, VALUES.values(), strict=True):
        vectors[start : start + size] += torch.randn(vectors.shape[1], generator=generator) * spread
        for number, value in enumerate(values, 1):
            vectors[start + number] += text.embedding[torch.tensor(encode(" " + value))].sum(0)
    return vectors


def rows_of(vectors: Tensor, attributes: Tensor, tokens: int) -> Tensor:
    """The rows (batch, tokens, width) of attributes (batch, 8)."""
    return _repeated(_lines(vectors, attributes), tokens)


def disturbed_rows(
    vectors: Tensor, attributes: Tensor, tokens: int, *, others: float, noise: float
) -> Tensor:
    """The rows that an eye gives that errs: half of the lines lean to another value, and all have noise.

    ``others`` is the most that such a line has of the other value, ``noise`` the most noise in shares of the spread.
    """
    lines = _lines(vectors, attributes)
    wrong = torch.stack([torch.randint(size, attributes.shape[:1]) for size in SIZES], 1)
    leaning = others * torch.rand(*attributes.shape, 1) * (torch.rand(*attributes.shape, 1) < 0.5)
    rows = _repeated(lines + leaning * (_lines(vectors, wrong) - lines), tokens)
    return rows + noise * torch.rand(len(rows), 1, 1) * vectors.std().detach() * torch.randn_like(rows)


def _lines(vectors: Tensor, attributes: Tensor) -> Tensor:
    return vectors[attributes + torch.tensor(_STARTS)]


def _repeated(lines: Tensor, tokens: int) -> Tensor:
    return lines.repeat_interleave(tokens // len(SIZES), 1)
