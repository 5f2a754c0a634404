"""Sampling values that the request sets; a model's configuration replaces only the others."""

from __future__ import annotations

from pydantic import BaseModel


def explicit_fields(body: BaseModel, **names: str) -> frozenset[str]:
    """Fields that the body sets to a value other than null, by their names in SamplingParams and StopConditions.

    names: those names where they differ from the body's.
    """
    present = (name for name in body.model_fields_set if getattr(body, name) is not None)
    return frozenset(names.get(name, name) for name in present)
