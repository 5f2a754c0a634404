"""/api/show: the Modelfile, parameters, capabilities and metadata of a model."""

from __future__ import annotations

from typing import Any

from jan_serve.core.models.listed_model import HeaderFacts
from jan_serve.core.models.model_details import ModelDetails, TensorFacts
from jan_serve.core.models.variant import Variant, VariantMessage
from jan_serve.dialects.ollama.models.show import parameter_lines, shown
from tests.unit.dialects.ollama.test_names import listed

LLAMA = {"general.architecture": "llama", "llama.context_length": 8192}
THINKING = "{{ '<think>' }}{{ messages }}"


def details(metadata: dict[str, Any] | None = None, **fields: Any) -> ModelDetails:
    model = listed("org/m", facts=HeaderFacts(architecture="llama", n_parameters=7))
    values: dict[str, Any] = {"tensors": (), "n_embd": 64, "n_ctx": 4096}
    return ModelDetails(model=model, metadata=LLAMA | (metadata or {}), **(values | fields))


def reply(found: ModelDetails, template: str | None = None, **options: Any) -> dict[str, Any]:
    return {**shown(found, "m", template, **({"verbose": False} | options))}


def test_a_plain_model_has_no_members_of_a_variant() -> None:
    found = reply(details())
    assert found["modelfile"] == "# Modelfile of jan-serve\nFROM org/m:latest\n"
    assert not {"template", "parameters", "system", "messages", "license", "tensors"} & found.keys()
    assert (found["details"]["context_length"], found["details"]["embedding_length"]) == (4096, 64)


def test_the_context_is_the_one_that_requests_get() -> None:
    info = reply(details())["model_info"]
    assert (info["llama.context_length"], info["general.parameter_count"]) == (4096, 7)


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


def test_parameters_are_one_line_for_each_item() -> None:
    assert [line.split() for line in parameter_lines({"stop": ["x", "y"], "seed": 1, "none": []})] == [
        ["stop", '"x"'], ["stop", '"y"'], ["seed", "1"],
    ]  # fmt: skip


def test_capabilities_are_those_of_the_template_that_the_server_uses() -> None:
    assert reply(details())["capabilities"] == ["completion"]
    assert reply(details(), THINKING)["capabilities"] == ["completion", "tools", "thinking"]


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
