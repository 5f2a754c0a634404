"""Variants made of requests, and what they inherit."""

from __future__ import annotations

from typing import Any

from jan_serve.core.models import PulledFile, PullStep, Variant, VariantMessage
from jan_serve.dialects.ollama.management import OllamaCreateRequest, PullLines, variant_of


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


FILES = (PulledFile("mmproj.gguf", 10, "a" * 64), PulledFile("m.gguf", 20, "b" * 64))


def said(*steps: PullStep) -> list[tuple[str, int | None]]:
    lines = PullLines()
    return [(line["status"], line.get("completed")) for step in steps for line in lines.chunks(step)]


def step(received: int, *, note: str | None = None, done: bool = False) -> PullStep:
    return PullStep("m", FILES, received, note, done)


def test_bytes_belong_to_the_files_in_order() -> None:
    first, second = f"pulling {'a' * 12}", f"pulling {'b' * 12}"
    assert said(step(0), step(4), step(4), step(10, note="retrying"), step(25), step(30, done=True)) == [
        ("pulling manifest", None),
        (first, 0),
        (first, 4),
        ("retrying", None),
        (second, 0),
        (second, 15),
        (first, 10),
        (second, 20),
        ("verifying sha256 digest", None),
        ("writing manifest", None),
        ("success", None),
    ]


def test_a_model_that_is_there_already() -> None:
    statuses = [status for status, _ in said(step(30, done=True))]
    assert (statuses[0], statuses[-1]) == ("pulling manifest", "success")
