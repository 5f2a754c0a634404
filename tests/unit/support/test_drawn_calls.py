"""What draws calls from a document finds the operation that fails, and tries the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest
import schemathesis
from fastapi import FastAPI

from tests.support.drawn_calls import CHECKS, draw_calls


class Recorded:
    """In place of pytest's subtests."""

    def __init__(self) -> None:
        self.failed: dict[str, bool] = {}

    @contextmanager
    def test(self, label: str) -> Generator[None]:
        try:
            yield
        except Exception:
            self.failed[label] = True
        else:
            self.failed[label] = False


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("draws", [None, "10"])
def test_an_operation_that_fails_is_named_and_the_others_are_drawn(
    monkeypatch: pytest.MonkeyPatch, draws: str | None
) -> None:
    monkeypatch.delenv("TEST_DRAWS", raising=False)
    if draws is not None:
        monkeypatch.setenv("TEST_DRAWS", draws)
    app = FastAPI()

    @app.get("/broken")
    def broken(size: int) -> int:
        return size if size < 1_000 else 1 // 0

    @app.get("/whole")
    def whole(size: int) -> int:
        return size

    calls: Counter[str] = Counter()

    def answer(case: Any) -> None:
        calls[case.path] += 1
        case.call_and_validate(checks=CHECKS)

    recorded: Any = Recorded()
    openapi: Any = schemathesis.openapi
    draw_calls(openapi.from_asgi("/openapi.json", app), 10, recorded, answer)
    assert recorded.failed == {"GET /broken": True, "GET /whole": False}
    assert (calls["/whole"] > 10) == (draws is not None), (
        "TEST_DRAWS tries the bounds of schemas besides the draws"
    )
