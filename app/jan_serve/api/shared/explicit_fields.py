"""Which sampling values a caller set himself, so that what is configured for a model replaces only the others."""

from __future__ import annotations

from pydantic import BaseModel


def given_fields(body: BaseModel, **names: str) -> frozenset[str]:
    """Fields of the body that it sets to something, null being nothing. names: what SamplingParams and StopConditions
    call them, where that is another name."""
    said = (name for name in body.model_fields_set if getattr(body, name) is not None)
    return frozenset(names.get(name, name) for name in said)
