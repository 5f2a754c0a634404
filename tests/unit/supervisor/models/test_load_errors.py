"""What a client reads when its model cannot be loaded."""

from __future__ import annotations

import pytest

from jan_serve.errors import InsufficientMemory, Unavailable
from jan_serve.store.memory.footprint import Footprint
from jan_serve.supervisor.models.eviction import CannotFit, Excluded
from jan_serve.supervisor.models.load_errors import load_error

GB = 1_000_000_000
SIZE = Footprint(weights=5 * GB, context=3 * GB, least_context=GB, working=GB // 2)


@pytest.mark.parametrize(
    ("reason", "others", "budget", "says", "omits"),
    [
        (CannotFit(6 * GB, 4 * GB, ()), (), None,
         ["about 6.50 GB", "5.00 GB for its weights, 1.00 GB for its context", "0.50 GB to work with",
          "4.00 GB can be had.", "close other programs."], ["beside", "without", "memory_budget"]),
        (CannotFit(6 * GB, 4 * GB, ()), ("b", "c"), 3 * GB,
         ["4.00 GB can be had, even without `b`, `c`.", "a memory_budget above 3.00 GB."], ["close other"]),
        (CannotFit(6 * GB, 4 * GB, ("p",)), ("p", "b"), None,
         ["4.00 GB can be had beside `p`, which stays in memory (pin)."], ["even without"]),
        (CannotFit(6 * GB, 4 * GB, tuple("vwxyz")), (), None, ["beside `v`, `w`, `x` and 2 more, which stay"], ["`y`"]),
        (CannotFit(6 * GB, 4 * GB, (), on_device=True), ("b",), None,
         ["6.00 GB on the accelerators", "(n_gpu_layers), and 4.00 GB can be had"], ["weights", "`b`"]),
    ],
)  # fmt: skip
def test_a_model_that_does_not_fit(
    reason: CannotFit, others: tuple[str, ...], budget: int | None, says: list[str], omits: list[str]
) -> None:
    if not reason.on_device:
        reason = CannotFit(SIZE.least, reason.available, reason.pinned)
    error = load_error("m", SIZE, reason, others, budget)
    assert isinstance(error, InsufficientMemory)
    assert (error.needed_bytes, error.available_bytes) == (reason.needed, reason.available)
    assert (error.param, error.retry_after) == ("model", None)
    assert error.message.startswith("The model `m` needs about ")
    assert [part for part in says if part not in error.message] == []
    assert [part for part in omits if part in error.message] == []


@pytest.mark.parametrize(
    ("pinned", "text"),
    [
        (("p",), "The model `m` cannot be loaded beside `p`, which stays in memory (pin). Unload it first."),
        (
            ("p", "q"),
            "The model `m` cannot be loaded beside `p`, `q`, which stay in memory (pin). Unload them first.",
        ),
    ],
)
def test_a_model_that_pinned_ones_exclude(pinned: tuple[str, ...], text: str) -> None:
    error = load_error("m", SIZE, Excluded(pinned), ())
    assert isinstance(error, Unavailable) and not isinstance(error, InsufficientMemory)
    assert error.message == text
