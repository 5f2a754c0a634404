"""Muon for the matrices, AdamW for the embedding and the norms.

Muon (Jordan et al., 2024) steps along the orthogonalised momentum; the step is scaled to AdamW's usual size as in
"Muon is Scalable for LLM Training" (Liu et al., 2025), so that one learning rate serves both.
"""

# The training packages are apart from the product's environment, in which types are checked.
# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Iterable
from math import sqrt

import torch
from torch import Tensor

from models.recipe.precision import PRODUCTS
from models.recipe.processes import Processes

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_STEPS = 5
_ADAM_STEP_SIZE = 0.2


def orthogonalised(matrix: Tensor, *, precision: torch.dtype = PRODUCTS) -> Tensor:
    """Roughly the nearest (semi-)orthogonal matrix, by five Newton-Schulz steps."""
    a, b, c = _COEFFICIENTS
    tall = matrix.shape[0] > matrix.shape[1]
    x = (matrix.T if tall else matrix).to(precision)
    x = x / (x.norm() + 1e-7)
    for _ in range(_STEPS):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.T if tall else x).float()


class Muon(torch.optim.Optimizer):
    """Momentum 0.95 with Nesterov, decoupled weight decay. Matrices only.

    Each of several processes orthogonalises its share of the matrices, and they exchange the results. ``precision`` is
    that of the orthogonalisation.
    """

    def __init__(
        self,
        matrices: Iterable[Tensor],
        processes: Processes,
        *,
        lr: float,
        weight_decay: float,
        momentum: float = 0.95,
        precision: torch.dtype = PRODUCTS,
    ) -> None:
        super().__init__(list(matrices), {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})
        self._processes, self._precision = processes, precision

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        for group in self.param_groups:
            matrices = group["params"]
            directions = [
                self._direction(
                    matrix, group["momentum"], ours=index % self._processes.count == self._processes.rank
                )
                for index, matrix in enumerate(matrices)
            ]
            self._processes.sum_(directions)
            for matrix, direction in zip(matrices, directions, strict=True):
                matrix.mul_(1 - group["lr"] * group["weight_decay"])
                matrix.add_(direction, alpha=-group["lr"] * _ADAM_STEP_SIZE * sqrt(max(matrix.shape)))

    def _direction(self, matrix: Tensor, momentum: float, *, ours: bool) -> Tensor:
        """The step of a matrix, or zeros where another process computes it; the velocity goes on in all of them."""
        velocity = self.state[matrix].setdefault("velocity", torch.zeros_like(matrix))
        velocity.lerp_(matrix.grad, 1 - momentum)
        if not ours:
            return torch.zeros_like(matrix)
        return orthogonalised(matrix.grad.lerp(velocity, momentum), precision=self._precision)
