"""Variants made of requests, and what they inherit."""

from __future__ import annotations

from typing import Any

from jan_serve.core.models.variant import Variant, VariantMessage
from jan_serve.dialects.ollama.management.create import variant_of
from jan_serve.dialects.ollama.management.wire import OllamaCreateRequest


def made(inherited: Variant | None = None, **fields: Any) -> Variant:
    body = OllamaCreateRequest.model_validate({"model": "v", "from": "base"} | fields)
    return variant_of(body, "v", "org/base", inherited, 7.0)


def test_defaults_are_what_the_request_sets() -> None:
    variant = made(parameters={"temperature": 0.5, "num_predict": 9, "stop": ["x"], "num_ctx": 4096})
    assert variant.defaults == {"max_tokens": 9, "stop": ("x",), "temperature": 0.5}
    assert variant.parameters == {"temperature": 0.5, "num_predict": 9, "stop": ["x"], "num_ctx": 4096}
    assert (variant.name, variant.base, variant.created_at) == ("v", "org/base", 7.0)


def test_empty_members_say_nothing() -> None:
    variant = made(system="", template="", license=[], messages=[], parameters={})
    assert variant == Variant(name="v", base="org/base", created_at=7.0)


def test_licences_are_joined() -> None:
    assert made(license="MIT").license == "MIT"
    assert made(license=["a", "b"]).license == "a\nb"


def test_a_variant_of_a_variant_replaces_what_it_sets() -> None:
    first = made(
        system="Old.",
        parameters={"temperature": 0.5, "top_k": 3},
        messages=[{"role": "user", "content": "Hi"}],
        license="MIT",
    )
    second = made(first, system="New.", parameters={"top_k": 5})
    assert (second.system, second.license) == ("New.", "MIT")
    assert second.defaults == {"temperature": 0.5, "top_k": 5}
    assert second.parameters == {"temperature": 0.5, "top_k": 5}
    assert second.messages == (VariantMessage("user", "Hi"),)
    assert first.system == "Old."
