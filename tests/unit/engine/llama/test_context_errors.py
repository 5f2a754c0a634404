"""What a context that llama.cpp could not create is called, by the errors that it logged."""

from __future__ import annotations

import pytest

from jan_serve.engine.llama.context_errors import context_error
from jan_serve.errors import InsufficientMemory, JanServeError, ModelFailed, SettingsError

FAILED = "llama_init_from_model: failed to initialize the context: "
CASES: list[tuple[list[str], type[JanServeError], str]] = [
    (
        ["llama_init_from_model: quantized V cache requires flash_attn to be enabled"],
        SettingsError,
        "type_v, flash_attn: values of type q8_0 require flash attention, and flash_attn is off: use type_v = f16",
    ),
    (
        [FAILED + "quantized V cache was requested, but this requires Flash Attention"],
        SettingsError,
        "type_v, flash_attn: values of type q8_0 require flash attention",
    ),
    (
        ["llama_init_from_model: K cache type q8_0 with block size 32 does not divide n_embd_head_k=24"],
        SettingsError,
        "type_k: q8_0 has blocks of 32 elements, and this model's heads have 24: use f16",
    ),
    (
        ["llama_init_from_model: V cache type q4_0 with block size 32 does not divide n_embd_head_v=80"],
        SettingsError,
        "type_v: q4_0 has blocks of 32 elements, and this model's heads have 80: use f16",
    ),
    (
        ["llama_init_from_model: model does not support different K (q8_0) and V (f16) cache types"],
        SettingsError,
        "type_k, type_v: this model has keys and values of one type",
    ),
    (
        [
            "alloc_tensor_range: failed to allocate CPU buffer of size 99999999",
            FAILED + "failed to allocate buffer for kv cache",
        ],
        InsufficientMemory,
        "not enough memory",
    ),
    (
        [
            "alloc_buffer: allocating 9000.00 MiB on device 0: cudaMalloc failed: out of memory",
            FAILED + "failed to initialize memory module",
        ],
        InsufficientMemory,
        "not enough memory",
    ),
    ([FAILED + "failed to allocate compute pp buffers"], InsufficientMemory, "not enough memory"),
    ([FAILED + "failed to reserve initial output buffer"], InsufficientMemory, "not enough memory"),
    ([FAILED + "std::bad_alloc"], InsufficientMemory, "not enough memory"),
    (
        [FAILED + "failed to initialize CUDA0 backend"],
        ModelFailed,
        r"of 64 tokens \(type_k f16, type_v q8_0, flash_attn off\): failed to initialize CUDA0 backend",
    ),
    ([FAILED + "n_seq_max must be <= 256"], ModelFailed, "n_seq_max must be <= 256"),
    (
        ["llama_init_from_model: SPLIT_MODE_TENSOR requires flash_attn to be enabled"],
        ModelFailed,
        "SPLIT_MODE_TENSOR requires",
    ),
    ([], ModelFailed, "it gives no reason"),
]


@pytest.mark.parametrize(("errors", "kind", "message"), CASES)
def test_only_a_lack_of_memory_is_called_so(
    errors: list[str], kind: type[JanServeError], message: str
) -> None:
    with pytest.raises(kind, match=message) as caught:
        raise context_error(errors, n_ctx=64, type_k="f16", type_v="q8_0", flash_attn="off")
    assert ("memory" in caught.value.message) == (kind is InsufficientMemory)


def test_flash_attention_that_is_missing_is_told_from_one_that_is_off() -> None:
    line = "llama_init_from_model: quantized V cache requires flash_attn to be enabled"
    with pytest.raises(
        SettingsError, match=r"flash_attn is auto, which llama\.cpp does not have for this model"
    ):
        raise context_error([line], n_ctx=64, type_k="f16", type_v="q8_0", flash_attn="auto")
