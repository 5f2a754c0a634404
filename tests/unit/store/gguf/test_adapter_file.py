"""Headers of LoRA adapters: what goes with a model, and what is said of the rest."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from jan_serve.errors import InvalidModel
from jan_serve.store.gguf.adapter_file import check_adapter
from models.recipe.lora_file import llama_shapes, write_lora
from tests.support.models import exact_llama as exact_llama
from tests.support.models import model_folder as model_folder
from tests.unit.store.gguf_builder import FLOAT32, GgufBytes, Tensor, key, string_key

I32 = 26


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sql.gguf"


def test_an_adapter_that_fits(path: Path) -> None:
    write_lora(path, {"blk.0.attn_q.weight": (64, 32)}, rank=4)
    assert check_adapter(path, "sql", "llama") == 4 * (4 * 32 + 64 * 4)


ODD: list[tuple[dict[str, Any], str]] = [
    ({"architecture": "qwen2"}, r"sql\.gguf is made for models of the architecture 'qwen2', .* 'llama'"),
    ({"metadata": {"adapter.alora.invocation_tokens": [1]}}, r"is an activated one \(aLoRA\)"),
    ({"shapes": {}}, "has no tensors"),
    ({"alpha": float("nan")}, r"no 32-bit number for the key adapter\.lora\.alpha"),
]


@pytest.mark.parametrize(("fields", "message"), ODD)
def test_adapters_that_do_not(path: Path, fields: dict[str, Any], message: str) -> None:
    write_lora(path, fields.pop("shapes", llama_shapes()), **fields)
    with pytest.raises(InvalidModel, match=f"The LoRA adapter `sql` cannot be used: .*{message}"):
        check_adapter(path, "sql", "llama")


def test_half_of_a_pair(path: Path) -> None:
    write_lora(path, {"blk.0.attn_q.weight": (64, 32)})
    raw = path.read_bytes()
    path.write_bytes(raw.replace(b"attn_q.weight.lora_b", b"attn_k.weight.lora_b"))
    with pytest.raises(InvalidModel, match=r"blk\.0\.attn_k\.weight\.lora_b', which is not one of a pair"):
        check_adapter(path, "sql", "llama")


def test_types_that_llama_cpp_would_abort_on(path: Path) -> None:
    head = [string_key("general.type", "adapter")]
    head.append(string_key("adapter.type", "lora"))
    float64 = key("adapter.lora.alpha", 12, struct.pack("<d", 4.0))
    float32 = key("adapter.lora.alpha", FLOAT32, struct.pack("<f", 4.0))
    pair = tuple(Tensor(f"x.lora_{part}") for part in "ab")
    path.write_bytes(GgufBytes(keys=(*head, float32), tensors=pair).build())
    assert check_adapter(path, "sql", "llama") == 68
    path.write_bytes(GgufBytes(keys=(*head, float64), tensors=pair).build())
    with pytest.raises(InvalidModel, match="no 32-bit number"):
        check_adapter(path, "sql", "llama")
    odd = (pair[0], Tensor("x.lora_b", (8,), I32, bytes(32)))
    path.write_bytes(GgufBytes(keys=(*head, float32), tensors=odd).build())
    with pytest.raises(InvalidModel, match=r"'x\.lora_b' of the type I32"):
        check_adapter(path, "sql", "llama")


def test_files_that_are_none(path: Path, exact_llama: Path) -> None:
    with pytest.raises(InvalidModel, match=r"`sql` cannot be used: exact-llama\.gguf is no LoRA adapter"):
        check_adapter(exact_llama, "sql", "llama")
    with pytest.raises(InvalidModel, match=r"`sql` cannot be used: sql\.gguf: cannot be read"):
        check_adapter(path, "sql", "llama")
    path.write_bytes(b"GGUF\x03")
    with pytest.raises(InvalidModel, match=r"`sql` cannot be used: sql\.gguf is not a valid GGUF file"):
        check_adapter(path, "sql", "llama")
    write_lora(path, llama_shapes())
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(InvalidModel, match="`sql` cannot be used"):
        check_adapter(path, "sql", "llama")
