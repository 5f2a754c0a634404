"""The rows that stand for a scene: what the text model learns to read, and the eye to give.

The cells of a picture tell its attributes in turn, each by the vector of its value: a line of cells in their order, the
next one in the opposite order, so that each has either neighbour before it. The text model looks back by one token
easily, so it learns which colour goes with a shape and which shape with a colour. The vectors are chosen beforehand, so
that both can be learned at once, and made of the text model's own tokens, which it copies already.
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
_SHARPNESS = 6.0


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
    return _repeated(_values(vectors, attributes), tokens)


def disturbed_rows(
    vectors: Tensor, attributes: Tensor, tokens: int, *, others: float, noise: float
) -> Tensor:
    """The rows that an eye gives that errs: half of the attributes lean to another value, and all have noise.

    ``others`` is the most that such an attribute has of the other value, ``noise`` the most noise in shares of the
    spread.
    """
    values = _values(vectors, attributes)
    wrong = torch.stack([torch.randint(size, attributes.shape[:1]) for size in SIZES], 1)
    leaning = others * torch.rand(*attributes.shape, 1) * (torch.rand(*attributes.shape, 1) < 0.5)
    rows = _repeated(values + leaning * (_values(vectors, wrong) - values), tokens)
    return rows + noise * torch.rand(len(rows), 1, 1) * vectors.std().detach() * torch.randn_like(rows)


def values_of(rows: Tensor) -> Tensor:
    """What rows (batch, tokens, width) tell of each attribute: (batch, 8, width), the means of its cells."""
    lines = rows.unflatten(1, (-1, len(SIZES)))
    return torch.cat([lines[:, ::2], lines[:, 1::2].flip(2)], 1).mean(1)


def scores_of(vectors: Tensor, values: Tensor) -> list[Tensor]:
    """How near values (batch, 8, width) are to those that each attribute may have."""
    spread = vectors.var(0, correction=0).mean() * vectors.shape[1]
    return [
        -_SHARPNESS * torch.cdist(values[:, index], vectors[start : start + size]).square() / spread
        for index, (start, size) in enumerate(zip(_STARTS, SIZES, strict=True))
    ]


def _values(vectors: Tensor, attributes: Tensor) -> Tensor:
    return vectors[attributes + torch.tensor(_STARTS)]


def _repeated(values: Tensor, tokens: int) -> Tensor:
    return values[:, attributes_of_cells(tokens)]


def attributes_of_cells(tokens: int) -> Tensor:
    """The attribute that each cell tells."""
    order = torch.arange(len(SIZES))
    lines = tokens // len(SIZES)
    return torch.cat([order.flip(0) if line % 2 else order for line in range(lines)])
