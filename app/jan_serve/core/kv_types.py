"""Sizes of KV cache types."""

from __future__ import annotations

from typing import Final

BYTES_PER_ELEMENT: Final = {
    "f32": 4.0,
    "f16": 2.0,
    "bf16": 2.0,
    "q8_0": 34 / 32,
    "q5_1": 24 / 32,
    "q5_0": 22 / 32,
    "q4_1": 20 / 32,
    "q4_0": 18 / 32,
    "iq4_nl": 18 / 32,
}
"""By llama.cpp's name; blocks of 32 elements include their scales."""


def is_quantised(kv_type: str) -> bool:
    return kv_type not in ("f32", "f16", "bf16")
