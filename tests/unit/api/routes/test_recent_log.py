"""The records that are kept."""

from __future__ import annotations

import logging

import pytest

from jan_serve.api.routes.recent_log import recent_log

pytestmark = pytest.mark.anyio


logger = logging.getLogger("jan_serve.test")


def test_it_hears_what_the_log_hears() -> None:
    with recent_log() as log:
        logger.warning("first %s", "one", extra={"model": "m"})
        try:
            raise ValueError("wrong")
        except ValueError:
            logger.exception("second" * 10_000)
    logger.warning("afterwards")
    first, second = log.entries()
    assert (first.content["message"], first.content["model"], first.number) == ("first one", "m", 1)
    assert "ValueError: wrong" in second.content["traceback"]
    assert len(second.content["message"]) < 21_000
    assert log.entries(after=1) == [second]
