"""What the header of a model may say: what ends llama.cpp's process is refused, and nothing that it runs."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any

import gguf
import pytest

from jan_serve.errors import InvalidModel
from jan_serve.store.gguf.header_checks import check_adapter
from jan_serve.store.gguf.model_file import read_model_file, read_projector
from models.recipe.fixtures import write_tiny_llama
from models.recipe.lora_file import llama_shapes, write_lora
from models.recipe.mixture_fixtures import write_tiny_mixture
from models.recipe.projector_fixtures import write_tiny_projector
from tests.support.gguf.gguf_edits import Kind, edited
from tests.support.gguf.models import exact_llama as exact_llama
from tests.support.gguf.models import model_folder as model_folder
from tests.unit.store.gguf_builder import FLOAT32, GgufBytes, Tensor, key, string_key

Type = gguf.GGMLQuantizationType
REPO = Path(__file__).resolve().parents[4]
MOE = "qwen3moe."


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    found = {name: folder / f"{name}.gguf" for name in ("llama", "qwen3moe")}
    write_tiny_llama(found["llama"], n_embd=256, quantize=False)
    write_tiny_mixture(found["qwen3moe"], quantize=False)
    return found


def tokens_of(path: Path) -> list[str]:
    field = gguf.GGUFReader(path).get_field("tokenizer.ggml.tokens")
    assert field is not None
    return field.contents()


STORED = {kind for kind in Type if kind.name not in ("Q8_1", "Q8_K", "I8", "I16", "I32", "I64", "F64")}


@pytest.mark.parametrize("kind", sorted(set(Type) - STORED))
@pytest.mark.parametrize("tensor", ["blk.0.ffn_down.weight", "token_embd.weight", "output.weight"])
def test_types_that_no_weight_can_have(
    files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Type, tensor: str
) -> None:
    monkeypatch.setitem(gguf.GGML_QUANT_SIZES, Type.Q8_1, (32, 36))  # ggml's; the package has another one
    path = edited(files["llama"], tmp_path / "m.gguf", types={tensor: kind})
    with pytest.raises(InvalidModel, match=rf"m\.gguf .*the tensor '{tensor}' has the type {kind.name},"):
        read_model_file(path)


@pytest.mark.parametrize("kind", sorted(STORED))
def test_types_that_weights_have(files: dict[str, Path], tmp_path: Path, kind: Type) -> None:
    tensors = ("blk.0.ffn_down.weight", "token_embd.weight", "blk.1.attn_q.weight")
    types = {name: kind for name in tensors}
    assert read_model_file(edited(files["llama"], tmp_path / "m.gguf", types=types)).n_layer == 2


@pytest.mark.parametrize("kind", [Type.F16, Type.BF16, Type.Q8_0, Type.I32])
@pytest.mark.parametrize("tensor", ["blk.1.ffn_norm.weight", "output_norm.weight"])
def test_norms_are_f32(files: dict[str, Path], tmp_path: Path, kind: Type, tensor: str) -> None:
    path = edited(files["llama"], tmp_path / "m.gguf", types={tensor: kind})
    with pytest.raises(InvalidModel, match=rf"'{tensor}' has the type {kind.name}"):
        read_model_file(path)


@pytest.mark.parametrize("name", ["d2t", "d2t.weight", "blk.0.ffn_gate_tid2eid.weight"])
@pytest.mark.parametrize("kind", [Type.I32, Type.I64])
def test_tables_of_integers_are_no_weights(
    files: dict[str, Path], tmp_path: Path, name: str, kind: Type
) -> None:
    weight = "blk.0.ffn_down.weight"
    path = edited(files["llama"], tmp_path / "m.gguf", types={weight: kind}, names={weight: name})
    read_model_file(path)


U32, F32, TEXT, ARRAY = Kind.UINT32, Kind.FLOAT32, Kind.STRING, Kind.ARRAY
REFUSED: dict[str, tuple[dict[str, tuple[Kind, Any]], str]] = {
    **{
        f"rms epsilon {value}": (
            {"llama.attention.layer_norm_rms_epsilon": (F32, value)},
            "attention.layer_norm_rms_epsilon is",
        )
        for value in (0.0, -1.0, math.nan, math.inf, -math.inf)
    },
    **{
        f"epsilon {value}": ({"llama.attention.layer_norm_epsilon": (F32, value)}, "layer_norm_epsilon is")
        for value in (-1.0, math.nan)
    },
    **{
        f"{count} blocks": ({"llama.block_count": (U32, count)}, f"{count} blocks; from 1 to 512")
        for count in (0, 513, 4096, 2**32 - 1)
    },
    **{
        f"{count} heads ahead": (
            {"llama.nextn_predict_layers": (U32, count)},
            f"nextn_predict_layers is {count}; it has 2 blocks",
        )
        for count in (3, 2**31)
    },
    **{
        f"context of {length}": ({"llama.context_length": (U32, length)}, f"context_length is {length}")
        for length in (1, 2**31, 2**32 - 1)
    },
    "rope scaling": ({"llama.rope.scaling.type": (TEXT, "nonsense")}, "'nonsense', none of none, linear"),
    "no vocabulary": ({"tokenizer.ggml.model": (TEXT, "none")}, "its vocabulary is 'none'"),
    "no vocabulary, by its other name": ({"tokenizer.ggml.model": (TEXT, "no_vocab")}, "'no_vocab'"),
    "bytes without tokens": ({"tokenizer.ggml.model": (TEXT, "llama")}, "no token for 162 of 256 bytes"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_values_that_no_model_has(files: dict[str, Path], tmp_path: Path, name: str) -> None:
    keys, reason = REFUSED[name]
    with pytest.raises(InvalidModel, match=rf"m\.gguf cannot be used: .*{reason}"):
        read_model_file(edited(files["llama"], tmp_path / "m.gguf", keys))


ALLOWED: dict[str, dict[str, tuple[Kind, Any]]] = {
    "a tiny epsilon": {"llama.attention.layer_norm_rms_epsilon": (F32, 1e-30)},
    "epsilon 0 of the other norm": {"llama.attention.layer_norm_epsilon": (F32, 0.0)},
    "512 blocks": {"llama.block_count": (U32, 512)},
    "all blocks predict": {"llama.nextn_predict_layers": (U32, 2)},
    "no context length": {"llama.context_length": (U32, 0)},
    "the longest context": {"llama.context_length": (U32, 2**31 - 1)},
    **{name: {"llama.rope.scaling.type": (TEXT, name)} for name in ("none", "linear", "yarn", "longrope")},
    **{kind: {"tokenizer.ggml.model": (TEXT, kind)} for kind in ("gpt2", "bert", "t5", "rwkv", "plamo2")},
}


@pytest.mark.parametrize("name", ALLOWED)
def test_values_that_llama_cpp_takes(files: dict[str, Path], tmp_path: Path, name: str) -> None:
    read_model_file(edited(files["llama"], tmp_path / "m.gguf", ALLOWED[name]))


@pytest.mark.parametrize(
    ("count", "used", "groups", "used_groups", "is_possible"),
    [
        (8, 2, 0, 0, True),
        (8, 8, 1, 0, True),
        (8, 2, 4, 2, True),
        (1024, 8, 0, 0, True),
        (0, 0, 0, 0, True),
        (0, 1, 0, 0, False),
        (8, 0, 0, 0, False),
        (8, 9, 0, 0, False),
        (1025, 8, 0, 0, False),
        (2**31, 8, 0, 0, False),
        (8, 2, 8, 1, False),
        (8, 2, 3, 1, False),
        (8, 2, 2, 2, False),
        (8, 2, 2, 0, False),
        (0, 0, 1, 0, False),
    ],
)
def test_numbers_of_experts(
    files: dict[str, Path],
    tmp_path: Path,
    count: int,
    used: int,
    groups: int,
    used_groups: int,
    is_possible: bool,
) -> None:
    numbers = {
        "expert_count": count,
        "expert_used_count": used,
        "expert_group_count": groups,
        "expert_group_used_count": used_groups,
    }
    keys = {MOE + name: (U32, number) for name, number in numbers.items()}
    path = edited(files["qwen3moe"], tmp_path / "m.gguf", keys)
    if is_possible:
        read_model_file(path)
    else:
        with pytest.raises(InvalidModel, match="experts"):
            read_model_file(path)


@pytest.mark.parametrize(
    ("texts", "twice"),
    [
        (("same", "same"), 1),
        (("same\0one", "same\0other"), 1),
        (("\0", ""), 0),
        (("", ""), 0),
        (("nul\0", "no such text"), 0),
    ],
)
def test_tokens_that_llama_cpp_takes_for_the_same(
    files: dict[str, Path], tmp_path: Path, texts: tuple[str, str], twice: int
) -> None:
    tokens = tokens_of(files["llama"])
    tokens[300:302] = texts
    path = edited(files["llama"], tmp_path / "m.gguf", {"tokenizer.ggml.tokens": (ARRAY, tokens)})
    if twice:
        with pytest.raises(InvalidModel, match=f"has {len(tokens)} tokens, of which {twice} are there twice"):
            read_model_file(path)
    else:
        read_model_file(path)


@pytest.mark.parametrize(
    ("missing", "is_possible"), [((), True), ((0x41,), True), ((0,), False), ((255,), False)]
)
def test_a_vocabulary_of_sentencepiece_has_a_token_for_each_byte(
    files: dict[str, Path], tmp_path: Path, missing: tuple[int, ...], is_possible: bool
) -> None:
    """A byte below 128 may be a token of its own, without the form of a byte."""
    tokens = tokens_of(files["llama"])
    for byte in range(256):
        tokens[300 + byte] = f"other {byte}" if byte in missing else f"<0x{byte:02X}>"
    keys = {"tokenizer.ggml.tokens": (ARRAY, tokens), "tokenizer.ggml.model": (TEXT, "llama")}
    path = edited(files["llama"], tmp_path / "m.gguf", keys)
    if is_possible:
        read_model_file(path)
    else:
        with pytest.raises(
            InvalidModel, match=f"no token for 1 of 256 bytes, the first of which is <0x{missing[0]:02X}>"
        ):
            read_model_file(path)


@pytest.mark.parametrize(("alignment", "is_possible"), [(32, True), (64, True), (1, False), (8, False)])
def test_tensors_lie_where_ggml_can_map_them(
    files: dict[str, Path], tmp_path: Path, alignment: int, is_possible: bool
) -> None:
    path = edited(files["llama"], tmp_path / "m.gguf", alignment=alignment)
    if is_possible:
        read_model_file(path)
    else:
        with pytest.raises(InvalidModel, match=f"not a multiple of 32 .general.alignment is {alignment}"):
            read_model_file(path)


def test_a_projector_has_the_types_of_weights_too(tmp_path: Path) -> None:
    source = tmp_path / "mmproj.gguf"
    write_tiny_projector(source, "mlp")
    read_projector(source)
    path = edited(source, tmp_path / "mmproj-i8.gguf", types={"v.blk.0.attn_q.weight": Type.I8})
    with pytest.raises(
        InvalidModel, match=r"mmproj-i8\.gguf cannot be used: the tensor 'v.blk.0.attn_q.weight'"
    ):
        read_projector(path)


def test_the_built_in_model_and_its_projector_are_possible() -> None:
    read_model_file(REPO / "models" / "builtin" / "jan-tiny.gguf")
    read_projector(REPO / "models" / "builtin" / "mmproj-jan-tiny.gguf")


def test_long_names_are_cut_for_lists(files: dict[str, Path], tmp_path: Path) -> None:
    path = edited(files["llama"], tmp_path / "m.gguf", {"general.name": (TEXT, "n" * 1_000_000)})
    assert read_model_file(path).facts().title == "n" * 256


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
    looks_like_it = string_key("general.name", float32.decode("latin1"))
    for keys in ((*head, float64), (*head, looks_like_it, float64)):
        path.write_bytes(GgufBytes(keys=keys, tensors=pair).build())
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
