"""Copies of a GGUF file with other keys, types of tensors and tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np

Kind = gguf.GGUFValueType


def edited(
    source: Path,
    target: Path,
    keys: Mapping[str, tuple[Kind, Any]] | None = None,
    *,
    without: Sequence[str] = (),
    types: Mapping[str, gguf.GGMLQuantizationType] | None = None,
    names: Mapping[str, str] | None = None,
    alignment: int = 32,
) -> Path:
    """keys: replaced or added; an array's kind is ARRAY. types: tensors keep their shape, with zeros of this type.

    names: of tensors, in place of their own.
    """
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, "")
    writer.kv_data[0].clear()
    if alignment != 32:
        writer.add_custom_alignment(alignment)
    values: dict[str, tuple[Kind, Any, Kind | None]] = {}
    for field in reader.fields.values():
        if not field.name.startswith("GGUF."):
            is_array = field.types[0] is Kind.ARRAY
            values[field.name] = (field.types[0], field.contents(), field.types[-1] if is_array else None)
    for name, (kind, value) in (keys or {}).items():
        values[name] = (kind, value, None)
    for name, (kind, value, element) in values.items():
        if name not in without:
            writer.add_key_value(name, value, kind, sub_type=element)
    for tensor in reader.tensors:
        kind, name = (types or {}).get(tensor.name), (names or {}).get(tensor.name, tensor.name)
        if kind is None:
            writer.add_tensor(name, tensor.data, raw_dtype=tensor.tensor_type)
            continue
        block, size = gguf.GGML_QUANT_SIZES[kind]
        shape = [int(each) for each in reversed(tensor.shape)]
        zeros = np.zeros((*shape[:-1], shape[-1] // block * size), np.uint8)
        writer.add_tensor(name, zeros, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target
