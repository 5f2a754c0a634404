"""ggml's types of tensors and files, quantisation labels in file names, and the default one.

Sources: ggml.h and ggml.c; llama_ftype in llama.h. Labels are llama.cpp's and the community's variants of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec


class TensorType(NamedTuple):
    """block: elements per block; size: bytes per block."""

    name: str
    block: int
    size: int


TENSOR_TYPES: Final[dict[int, TensorType]] = {
    0: TensorType("F32", 1, 4),
    1: TensorType("F16", 1, 2),
    2: TensorType("Q4_0", 32, 18),
    3: TensorType("Q4_1", 32, 20),
    6: TensorType("Q5_0", 32, 22),
    7: TensorType("Q5_1", 32, 24),
    8: TensorType("Q8_0", 32, 34),
    9: TensorType("Q8_1", 32, 36),
    10: TensorType("Q2_K", 256, 84),
    11: TensorType("Q3_K", 256, 110),
    12: TensorType("Q4_K", 256, 144),
    13: TensorType("Q5_K", 256, 176),
    14: TensorType("Q6_K", 256, 210),
    15: TensorType("Q8_K", 256, 292),
    16: TensorType("IQ2_XXS", 256, 66),
    17: TensorType("IQ2_XS", 256, 74),
    18: TensorType("IQ3_XXS", 256, 98),
    19: TensorType("IQ1_S", 256, 50),
    20: TensorType("IQ4_NL", 32, 18),
    21: TensorType("IQ3_S", 256, 110),
    22: TensorType("IQ2_S", 256, 82),
    23: TensorType("IQ4_XS", 256, 136),
    24: TensorType("I8", 1, 1),
    25: TensorType("I16", 1, 2),
    26: TensorType("I32", 1, 4),
    27: TensorType("I64", 1, 8),
    28: TensorType("F64", 1, 8),
    29: TensorType("IQ1_M", 256, 56),
    30: TensorType("BF16", 1, 2),
    34: TensorType("TQ1_0", 256, 54),
    35: TensorType("TQ2_0", 256, 66),
    39: TensorType("MXFP4", 32, 17),
    40: TensorType("NVFP4", 64, 36),
    41: TensorType("Q1_0", 128, 18),
    42: TensorType("Q2_0", 64, 18),
}

NEVER_STORED = frozenset({"Q8_1", "Q8_K", "I8", "I16", "F64"})
"""Types that nothing in ggml turns into floats: of activations within a product, and of tensors that no model has."""

INTEGERS = frozenset({"I32", "I64"})
"""Types of tables, such as that of experts by token. No weight has them."""

FILE_TYPES: Final[dict[int, str]] = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    7: "Q8_0",
    8: "Q5_0",
    9: "Q5_1",
    10: "Q2_K",
    11: "Q3_K_S",
    12: "Q3_K_M",
    13: "Q3_K_L",
    14: "Q4_K_S",
    15: "Q4_K_M",
    16: "Q5_K_S",
    17: "Q5_K_M",
    18: "Q6_K",
    19: "IQ2_XXS",
    20: "IQ2_XS",
    21: "Q2_K_S",
    22: "IQ3_XS",
    23: "IQ3_XXS",
    24: "IQ1_S",
    25: "IQ4_NL",
    26: "IQ3_S",
    27: "IQ3_M",
    28: "IQ2_S",
    29: "IQ2_M",
    30: "IQ4_XS",
    31: "IQ1_M",
    32: "BF16",
    36: "TQ1_0",
    37: "TQ2_0",
    38: "MXFP4_MOE",
    39: "NVFP4",
    40: "Q1_0",
    41: "Q2_0",
}
"""general.file_type (llama_ftype): the type of most weights."""


_LABEL: Final = re.compile(
    r"(?<![A-Za-z0-9])"
    r"((?:UD-|i1-)?"
    r"(?:IQ[1-8](?:_[A-Z0-9]+){0,2}|T?Q[1-8](?:_[A-Z0-9]+){0,3}|MXFP4(?:_[A-Z]+)?|NVFP4|BF16|FP16|F16|FP32|F32))"
    r"(?![A-Za-z0-9])",
    re.IGNORECASE,
)
_BITS: Final = re.compile(r"(?:UD-|I1-)?T?I?Q(\d)")
_FLOATS: Final = {"BF16": 16, "F16": 16, "FP16": 16, "F32": 32, "FP32": 32, "NVFP4": 4}
_SAME_LABEL: Final = {"FP16": "F16", "FP32": "F32"}

# Maximum share of the memory for a model of so many bits. More than four bits gain little quality and cost much speed,
# so larger ones are chosen only if memory is plentiful.
_SHARE_OF_BITS: Final = {8: 0.25, 6: 0.35, 5: 0.5, 4: 1.0, 3: 1.0, 2: 1.0, 1: 1.0}
# Order among labels with equal bits: K mixtures are the best measured compromise of size, quality and speed.
_ORDER_WITHIN_BITS: Final = tuple("_K_M _K_XL _K_L _K_S _K MXFP4 _XS _NL _M _S _0 _1".split())


class QuantisedFile(msgspec.Struct, frozen=True):
    """An available quantisation. n_bytes: of all its files; n_memory: bytes to run it."""

    label: str
    n_bytes: int
    n_memory: int


class Choice(msgspec.Struct, frozen=True):
    """reason: a predicate for people."""

    label: str
    reason: str


def quantisation_of(file_name: str) -> str | None:
    """The last quantisation label in a file name, in upper case, for example `Q4_K_M`."""
    labels = _LABEL.findall(file_name)
    if not labels:
        return None
    label = labels[-1].upper()
    return _SAME_LABEL.get(label, label)


def bits_of(label: str) -> int:
    """Nominal bits per weight, from 1 to 32; 0 if unknown."""
    if label in _FLOATS:
        return _FLOATS[label]
    if label.startswith("MXFP4"):
        return 4
    match = _BITS.match(label)
    return int(match[1]) if match else 0


def best_first(labels: Sequence[str]) -> list[str]:
    """Labels by decreasing bits; among equal bits, the usual choice first."""
    return sorted(labels, key=lambda label: (-bits_of(label), _rank_within_bits(label), label))


def choose(candidates: Sequence[QuantisedFile], n_free: int) -> Choice | None:
    """The default for `n_free` bytes of memory; None if nothing fits. Unquantised ones only for want of others."""
    by_label = {candidate.label: candidate for candidate in candidates}
    quantised = [label for label in by_label if 0 < bits_of(label) <= 8]
    skipped: QuantisedFile | None = None
    for label in best_first(quantised or list(by_label)):
        candidate = by_label[label]
        if candidate.n_memory <= n_free * _SHARE_OF_BITS.get(bits_of(label), 1.0):
            return Choice(label, _reason(candidate, skipped, n_free))
        skipped = candidate
    return None


def _reason(chosen: QuantisedFile, skipped: QuantisedFile | None, n_free: int) -> str:
    """skipped: the next better one, which does not fit."""
    needs = f"needs about {gigabytes(chosen.n_memory)} of the {gigabytes(n_free)} that are free"
    if skipped is None:
        return needs
    verb = "would take" if skipped.n_memory <= n_free else "would need"
    return f"{needs}; {skipped.label} {verb} {gigabytes(skipped.n_memory)}"


def gigabytes(n_bytes: int) -> str:
    """A size for people, in 10^9 bytes."""
    return f"{n_bytes / 1e9:.2g} GB" if n_bytes < 9.95e9 else f"{n_bytes / 1e9:.0f} GB"


def _rank_within_bits(label: str) -> tuple[int, int]:
    """K mixtures, then other Q types, then IQ types, which are slow on CPUs; dynamic variants after plain ones."""
    is_variant = label.startswith(("UD-", "I1-"))
    for rank, ending in enumerate(_ORDER_WITHIN_BITS):
        if label.endswith(ending) or (ending == "MXFP4" and label.startswith(ending)):
            return rank + (len(_ORDER_WITHIN_BITS) if "IQ" in label else 0), int(is_variant)
    return 2 * len(_ORDER_WITHIN_BITS), int(is_variant)
