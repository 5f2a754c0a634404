"""Facts that a request takes from its model, and the limit of requests at a time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from jan_serve.core.events import TokenInfo, TokenLogprob
from jan_serve.core.models import SpecialToken
from jan_serve.core.request import AdapterChoice
from jan_serve.dialects.tgi import serving
from jan_serve.dialects.tgi.serving import Serving
from jan_serve.errors import JanServeError
from jan_serve.http.sse import StreamSettings
from tests.support.fake_client import FakeModels, fake_facts


def limited(n: int) -> tuple[Serving, list[JanServeError]]:
    """A Serving of at most `n` requests, and the failures that it counts."""
    failures: list[JanServeError] = []
    parts: Any = SimpleNamespace(
        models=FakeModels(),
        preparer=None,
        running=None,
        streams=StreamSettings(15.0, 60.0),
        metrics=SimpleNamespace(page=bytes),
    )
    limits: Any = SimpleNamespace(tgi_max_concurrent_requests=n)
    metrics: Any = SimpleNamespace(failed=failures.append)
    made = Serving(parts, limits, metrics)
    return made, failures


def test_jobs_are_counted_until_they_end_however_they_end() -> None:
    made, failures = limited(3)
    with made.running(2):
        assert not made.is_full
        with pytest.raises(JanServeError, match="Model is overloaded"), made.running(2):
            raise AssertionError("it runs")
        with pytest.raises(ZeroDivisionError), made.running(1):
            assert made.is_full
            raise ZeroDivisionError
        assert not made.is_full
    with made.running(3):
        assert made.is_full
    assert len(failures) == 1


ADAPTERS: Any = (SimpleNamespace(name="SQL"), SimpleNamespace(name="c"))


@pytest.mark.parametrize(
    ("name", "chosen"),
    [
        (None, None),
        ("sql", (AdapterChoice("sql"),)),
        ("C", (AdapterChoice("C"),)),
        ("other", None),
        ("", None),
    ],
)
def test_an_unknown_adapter_changes_nothing(name: str | None, chosen: Any) -> None:
    facts = fake_facts(adapters=ADAPTERS)
    assert serving._adapters(name, facts) == chosen  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(("layers", "kind"), [(0, "cpu+optimized"), (1, "gpu+optimized")])
def test_the_compute_type_is_where_the_layers_are(layers: int, kind: str) -> None:
    assert serving._compute_type(fake_facts(n_gpu_layers=layers)) == kind  # pyright: ignore[reportPrivateUsage]


EOS, EOT = SpecialToken(7, "</s>"), SpecialToken(8, "<eot>")


@pytest.mark.parametrize(
    ("special", "token"),
    [({"eos": EOS, "eot": EOT}, (7, b"</s>")), ({"eot": EOT}, (8, b"<eot>")), ({}, None)],
)
@pytest.mark.parametrize("with_candidates", [False, True])
def test_the_token_that_ends_an_answer(
    special: dict[str, SpecialToken], token: tuple[int, bytes] | None, with_candidates: bool
) -> None:
    found: TokenInfo | None = serving._eos(  # pyright: ignore[reportPrivateUsage]
        fake_facts(special_tokens=special), with_candidates=with_candidates
    )
    if token is None:
        assert found is None
        return
    top = (TokenLogprob(*token, 0.0, True),) if with_candidates else ()
    assert found == TokenInfo(*token, True, 0.0, top)
