from __future__ import annotations

from pydantic import BaseModel

from jan_serve.dialects.shared.explicit_fields import explicit_fields


class Body(BaseModel):
    temperature: float | None = 0.5
    top_p: float | None = None
    n_predict: int | None = None


def test_defaults_and_nulls_are_not_explicit() -> None:
    assert explicit_fields(Body()) == frozenset()
    assert explicit_fields(Body(temperature=None)) == frozenset()


def test_a_value_equal_to_the_default_is_explicit() -> None:
    assert explicit_fields(Body(temperature=0.5)) == {"temperature"}


def test_fields_have_the_names_of_the_parameters() -> None:
    body = Body(top_p=0.0, n_predict=3)
    assert explicit_fields(body, n_predict="max_tokens") == {"top_p", "max_tokens"}
