"""Quantisations in file names, and which one is chosen for how much memory."""

from __future__ import annotations

import pytest

from jan_serve.store.gguf.quantisation import (
    FILE_TYPES,
    QuantisedFile,
    best_first,
    bits_of,
    choose,
    quantisation_of,
)
from jan_serve.store.model_memory import FreeMemory, memory_needed


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("Qwen3-0.6B-Q8_0.gguf", "Q8_0"),
        ("model.Q4_K_M.gguf", "Q4_K_M"),
        ("model.q4_k_m.gguf", "Q4_K_M"),
        ("x-UD-Q4_K_XL-00001-of-00002.gguf", "UD-Q4_K_XL"),
        ("m.i1-IQ3_XXS.gguf", "I1-IQ3_XXS"),
        ("gpt-oss-20b-mxfp4.gguf", "MXFP4"),
        ("gpt-oss-20b-MXFP4_MOE.gguf", "MXFP4_MOE"),
        ("a-f16.gguf", "F16"),
        ("a.fp16.gguf", "F16"),
        ("a-BF16.gguf", "BF16"),
        ("bitnet-TQ1_0.gguf", "TQ1_0"),
        ("a-Q8_0-to-Q4_K_S.gguf", "Q4_K_S"),
        ("FAQ4_questions.gguf", None),
        ("Big.gguf", None),
    ],
)
def test_labels(name: str, label: str | None) -> None:
    assert quantisation_of(name) == label


def test_every_file_type_of_llama_cpp_is_read_and_ordered() -> None:
    for label in FILE_TYPES.values():
        assert quantisation_of(f"model-{label}.gguf") == label
        assert bits_of(label) > 0
    constants = pytest.importorskip("gguf.constants")
    named = {int(kind): kind.name for kind in constants.LlamaFileType}
    for number, label in FILE_TYPES.items():
        assert number not in named or named[number].endswith(label)


def test_order() -> None:
    labels = ["Q2_K", "IQ4_XS", "F16", "Q4_0", "Q8_0", "UD-Q4_K_XL", "Q4_K_S", "Q4_K_M", "Q5_K_M"]
    assert best_first(labels) == [
        "F16", "Q8_0", "Q5_K_M", "Q4_K_M", "UD-Q4_K_XL", "Q4_K_S", "Q4_0", "IQ4_XS", "Q2_K",
    ]  # fmt: skip


GB = 1_000_000_000


def candidates(parameters: float, *labels: str) -> list[QuantisedFile]:
    """Files of a model with so many billion parameters."""
    sizes = {label: int(parameters * GB * bits_of(label) / 8 * 1.1) for label in labels}
    return [QuantisedFile(label, n, memory_needed(n, bits_of(label))) for label, n in sizes.items()]


ALL = ("Q2_K", "Q3_K_M", "Q4_K_M", "Q5_K_M", "Q6_K", "Q8_0", "F16")


@pytest.mark.parametrize(
    ("parameters", "free_gb", "label"),
    [
        (0.6, 16, "Q8_0"),
        (4, 64, "Q8_0"),
        (4, 16, "Q6_K"),
        (8, 16, "Q5_K_M"),
        (8, 8, "Q4_K_M"),
        (8, 6, "Q4_K_M"),
        (8, 5, "Q3_K_M"),
        (8, 4, "Q2_K"),
        (8, 2, None),
        (30, 16, "Q3_K_M"),
    ],
)
def test_choice(parameters: float, free_gb: float, label: str | None) -> None:
    choice = choose(candidates(parameters, *ALL), int(free_gb * GB))
    assert (choice.label if choice else None) == label


def test_reasons_say_the_figures() -> None:
    choice = choose(candidates(8, *ALL), 5 * GB)
    assert choice is not None
    assert choice.reason == "needs about 4.5 GB of the 5 GB that are free; Q4_K_M would need 5.6 GB"
    choice = choose(candidates(8, *ALL), 8 * GB)
    assert choice is not None
    assert choice.reason.endswith("Q5_K_M would take 6.7 GB")
    choice = choose(candidates(0.6, "Q8_0"), 64 * GB)
    assert choice is not None
    assert choice.reason == "needs about 1.2 GB of the 64 GB that are free"


def test_floats_only_where_nothing_else_is() -> None:
    small = choose(candidates(0.1, "F16", "Q8_0"), 64 * GB)
    only = choose(candidates(0.1, "F16"), 64 * GB)
    assert small is not None and small.label == "Q8_0"
    assert only is not None and only.label == "F16"


def test_usable_memory_adds_accelerators_to_most_of_the_main_memory() -> None:
    assert FreeMemory(10 * GB).usable == 9 * GB
    assert FreeMemory(10 * GB, [8 * GB, 4 * GB]).usable == 21 * GB
