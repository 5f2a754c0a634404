from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace

from jan_serve.core.models import HeaderFacts, ListedModel
from jan_serve.dialects.shared.model_cards import context_length, input_modalities, meta


def listed(facts: HeaderFacts | None) -> ListedModel:
    return ListedModel(
        name="m",
        aliases=(),
        adapters=(),
        source="folder",
        source_name="",
        size_bytes=7,
        modified_at=0,
        can_remove=True,
        facts=facts,
        problem=None,
    )


HEADER = HeaderFacts(architecture="llama", n_ctx_train=4096, n_parameters=9)
LOADED: Any = SimpleNamespace(facts=SimpleNamespace(n_ctx=512, n_vocab=10, n_embd=2))
NEVER_LOADED: Any = SimpleNamespace(facts=None)


def test_a_loaded_model_has_the_context_that_it_was_loaded_with() -> None:
    assert context_length(listed(HEADER), LOADED) == 512
    assert context_length(listed(HEADER), NEVER_LOADED) == 4096
    assert context_length(listed(HEADER), None) == 4096
    assert context_length(listed(None), None) is None


def test_meta_has_only_facts_that_are_known() -> None:
    assert meta(listed(None), None) == {"size": 7}
    header = meta(listed(HEADER), NEVER_LOADED)
    assert (header["architecture"], header["n_params"], header["n_ctx_train"]) == ("llama", 9, 4096)
    assert "n_ctx" not in header
    assert meta(listed(HEADER), LOADED) == header | {"n_vocab": 10, "n_embd": 2, "n_ctx": 512}


def test_inputs_are_named_as_elsewhere() -> None:
    assert input_modalities(listed(None)) == ["text"]
    assert input_modalities(replace(listed(None), modalities=("vision", "audio"))) == [
        "text",
        "image",
        "audio",
    ]
