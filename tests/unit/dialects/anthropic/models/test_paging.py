"""Pages of models."""

from __future__ import annotations

import pytest

from jan_serve.dialects.anthropic.models.paging import page
from jan_serve.dialects.anthropic.models.render import bare_info
from jan_serve.errors import InvalidRequest

INFOS = [bare_info(name) for name in "abcde"]


@pytest.mark.parametrize(
    ("limit", "after", "before", "ids", "more"),
    [
        (20, None, None, "abcde", False), (2, None, None, "ab", True), (2, "b", None, "cd", True),
        (2, "c", None, "de", False), (2, "e", None, "", False), (2, None, "d", "bc", True),
        (2, None, "c", "ab", False), (9, "a", "d", "bc", False),
    ],
)  # fmt: skip
def test_a_page(limit: int, after: str | None, before: str | None, ids: str, *, more: bool) -> None:
    found = page(INFOS, limit, after, before)
    assert "".join(info["id"] for info in found["data"]) == ids
    assert found["has_more"] is more
    assert (found["first_id"], found["last_id"]) == ((ids[0], ids[-1]) if ids else (None, None))


def test_an_unknown_place_is_rejected() -> None:
    with pytest.raises(InvalidRequest, match="after_id"):
        page(INFOS, 1, "z", None)
