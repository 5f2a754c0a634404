"""A request for embeddings under way. The engine's thread alone changes it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from jan_serve.ipc.messages import EmbedRequest

Floats = npt.NDArray[np.float32]


@dataclass(slots=True, eq=False)
class EmbedJob:
    """The tokens of each input, the vectors that are computed (not normalised), and where the work stands."""

    request: EmbedRequest
    rows: list[list[int]]
    vectors: list[Floats] = field(default_factory=list[Floats])
    num_read: int = 0
    """Tokens of the first input without a vector that the model has read."""
    total: Floats | None = None
    """What these tokens gave so far, for pooling."""

    @property
    def is_done(self) -> bool:
        return len(self.vectors) == len(self.rows)

    @property
    def prompt_tokens(self) -> int:
        return sum(len(row) for row in self.rows)
