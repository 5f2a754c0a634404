"""Sizes, digests and times in rows."""

from __future__ import annotations

from typing import Any

import pytest

from jan_serve.core.models import HeaderFacts, ListedModel, ModelDetails, TensorFacts, Variant, VariantMessage
from jan_serve.dialects.ollama.models import (
    ListedRow,
    capabilities,
    digest,
    listed_capabilities,
    listed_rows,
    modified_at,
    parameter_size,
    shown,
    shown_names,
)
from jan_serve.generation.profiles import TemplateOverride


def listed(name: str, **fields: Any) -> ListedModel:
    values: dict[str, Any] = {
        "aliases": (), "adapters": (), "source": "folder", "source_name": "", "size_bytes": 1, "modified_at": 1,
        "can_remove": True, "facts": None, "problem": None,
    }  # fmt: skip
    return ListedModel(name=name, **(values | fields))


def test_all_names_of_a_model() -> None:
    assert shown_names(listed("a")) == ("a:latest",)
    model = listed("org/a", aliases=("qwen3-4b", "x:1b", "qwen3-4b"), adapters=("sql",), source="hub")
    assert shown_names(model) == ("org/a:latest", "qwen3-4b:latest", "x:1b", "org/a:sql")
    assert shown_names(listed("ollama/llama3-8b", aliases=("llama3:8b",), source="ollama")) == ("llama3:8b",)
    assert shown_names(listed("created/mine-1b", aliases=("mine:1b",), source="created")) == ("mine:1b",)


PLAIN = TemplateOverride("plain", "{{ messages }}")
THINKING = TemplateOverride("thinking", "{{ '<think>' }}{{ messages }}")


def facts(**values: Any) -> HeaderFacts:
    known: dict[str, Any] = {"thinks": False} | values
    return HeaderFacts(architecture="llama", **known)


@pytest.mark.parametrize(
    ("known", "modalities", "templated", "thinks", "expected"),
    [
        (facts(), (), False, False, ["completion"]),
        (facts(), (), True, False, ["completion", "tools"]),
        (facts(), (), True, True, ["completion", "tools", "thinking"]),
        (facts(), ("vision", "audio"), False, False, ["completion", "vision", "audio"]),
        (facts(fills_gaps=True), (), False, False, ["completion", "insert"]),
        (facts(pooling="mean", fills_gaps=True), ("vision",), True, True, ["embedding"]),
    ],
)
def test_capabilities(
    known: HeaderFacts, modalities: tuple[str, ...], *, templated: bool, thinks: bool, expected: list[str]
) -> None:
    assert capabilities(known, modalities, templated=templated, thinks=thinks) == expected


@pytest.mark.parametrize(
    ("known", "override", "expected"),
    [
        (None, None, None),
        (facts(thinks=None), PLAIN, None),
        (facts(), None, ["completion"]),
        (facts(has_chat_template=True), None, ["completion", "tools"]),
        (facts(has_chat_template=True, thinks=True), None, ["completion", "tools", "thinking"]),
        (facts(has_chat_template=True, thinks=True), PLAIN, ["completion", "tools"]),
        (facts(), THINKING, ["completion", "tools", "thinking"]),
        (facts(), TemplateOverride("chatml"), ["completion", "tools"]),
        (
            facts(has_chat_template=True, thinks=True),
            TemplateOverride("tool_use"),
            ["completion", "tools", "thinking"],
        ),
    ],
)
def test_a_configured_template_replaces_the_models(
    known: HeaderFacts | None, override: TemplateOverride | None, expected: list[str] | None
) -> None:
    assert listed_capabilities(known, (), override) == expected


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (8_190_000_000, "8.2B"), (8_000_000_000, "8B"), (70_553_706_496, "70.6B"), (494_032_768, "494.03M"),
        (12_345, "12.35K"), (64, "64"), (0, "0"),
    ],
)  # fmt: skip
def test_parameter_size(count: int, text: str) -> None:
    assert parameter_size(count) == text


def test_a_digest_is_the_files_or_changes_with_it() -> None:
    assert digest(listed("a", sha256="ab" * 32)) == "ab" * 32
    plain = digest(listed("a"))
    assert len(plain) == 64
    assert plain == digest(listed("a"))
    assert (
        len(
            {
                plain,
                digest(listed("b")),
                digest(listed("a", size_bytes=2)),
                digest(listed("a", modified_at=2)),
            }
        )
        == 4
    )


def test_times_are_utc() -> None:
    assert modified_at(listed("a", modified_at=86_400)) == "1970-01-02T00:00:00.000000Z"


def rows_of(*models: ListedModel, override: TemplateOverride | None = None) -> list[ListedRow]:
    return listed_rows(models, lambda _model, name: override if name is None else None)


def test_the_newest_model_is_first_and_broken_files_are_left_out() -> None:
    rows = rows_of(
        listed("old", modified_at=1), listed("broken", problem="damaged"), listed("new", modified_at=2)
    )
    assert [row["name"] for row in rows] == ["new:latest", "old:latest"]


def test_rows_are_made_once_per_change_of_a_model() -> None:
    first, again = rows_of(listed("a"), listed("b")), rows_of(listed("a"), listed("b", size_bytes=9))
    assert again[0] is first[0], "clients ask for the list of a thousand models again and again"
    assert again[1]["size"] == 9


def test_each_name_has_the_capabilities_of_its_template() -> None:
    facts = HeaderFacts(architecture="llama", has_chat_template=True, thinks=True)
    model = listed("a", aliases=("b",), facts=facts)
    own, plain = ["completion", "tools", "thinking"], ["completion", "tools"]
    assert [row.get("capabilities") for row in rows_of(model)] == [own, own]
    override = TemplateOverride("plain", "{{ messages }}")
    assert [row.get("capabilities") for row in rows_of(model, override=override)] == [plain, own]
    assert "capabilities" not in rows_of(listed("c"))[0], "its header is not read yet"


LLAMA = {"general.architecture": "llama", "llama.context_length": 8192}


def details(metadata: dict[str, Any] | None = None, **fields: Any) -> ModelDetails:
    model = listed("org/m", facts=HeaderFacts(architecture="llama", n_parameters=7))
    values: dict[str, Any] = {"tensors": (), "n_embd": 64, "n_ctx": 4096}
    return ModelDetails(model=model, metadata=LLAMA | (metadata or {}), **(values | fields))


def reply(found: ModelDetails, template: str | None = None, **options: Any) -> dict[str, Any]:
    return {**shown(found, "m", template, **({"verbose": False} | options))}


def test_a_variant_is_shown_as_it_was_made() -> None:
    variant = Variant(
        name="v",
        base="org/m",
        created_at=1.0,
        system="Be brief.",
        template="{{ messages }}",
        messages=(VariantMessage("user", "Hi"),),
        parameters={"temperature": 0.5, "stop": ["a", "é\n"]},
        license="MIT",
    )
    found = reply(details(variant=variant, metadata={"general.license": "other"}), "{{ messages }}")
    lines = [
        "FROM org/m:latest",
        'TEMPLATE """{{ messages }}"""',
        'SYSTEM """Be brief."""',
        'LICENSE """MIT"""',
        f"PARAMETER {'temperature':<30} 0.5",
        f'PARAMETER {"stop":<30} "a"',
        f'PARAMETER {"stop":<30} "é\\n"',
        'MESSAGE user """Hi"""',
    ]
    assert found["modelfile"].splitlines()[1:] == lines
    assert found["parameters"].splitlines() == [line.removeprefix("PARAMETER ") for line in lines[4:7]]
    assert (found["system"], found["license"]) == ("Be brief.", "MIT")
    assert found["messages"] == [{"role": "user", "content": "Hi"}]


def test_long_arrays_and_tensors_are_for_verbose_clients() -> None:
    metadata = {
        "a.short": [1, 2],
        "a.long": list(range(6)),
        "general.name": "x",
        "tokenizer.chat_template": "y",
        "tokenizer.chat_template.tool_use": "z",
    }
    found = details(metadata, tensors=(TensorFacts("t", (2, 3), "Q8_0"),))
    info = reply(found)["model_info"]
    assert (info["a.short"], info["a.long"]) == ([1, 2], [])
    assert not [key for key in info if key.startswith(("general.name", "tokenizer.chat_template"))]
    verbose = reply(found, verbose=True)
    assert verbose["model_info"]["a.long"] == list(range(6))
    assert verbose["tensors"] == [{"name": "t", "type": "Q8_0", "shape": [2, 3]}]


def test_a_client_that_shows_the_base_name_gets_the_requested_one() -> None:
    found = details({"general.basename": "Base"})
    assert reply(found)["model_info"]["general.basename"] == "Base"
    assert reply(found, titled=True)["model_info"]["general.basename"] == "m"
