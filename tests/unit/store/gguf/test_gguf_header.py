"""The header reader: what it says of good files, and that nothing else than InvalidModel comes out of bad ones."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from jan_serve.errors import InvalidModel
from jan_serve.store.gguf.gguf_header import ArrayValue, read_gguf_header
from jan_serve.store.gguf.quantisation import TENSOR_TYPES
from tests.unit.store.gguf_builder import (
    ARRAY,
    BOOL,
    F32,
    FLOAT32,
    INT32,
    Q4_0,
    STRING,
    GgufBytes,
    Tensor,
    ints_key,
    key,
    string_key,
    strings_key,
    uint_key,
)

TOKENS = strings_key("tokenizer.ggml.tokens", ["a", "b", "<0x41>"])


def write(folder: Path, content: bytes) -> Path:
    path = folder / "model.gguf"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("version", [2, 3])
def test_reads_metadata_and_tensor_sizes(tmp_path: Path, version: int) -> None:
    keys = [
        uint_key("llama.context_length", 2048),
        TOKENS,
        ints_key("tokenizer.ggml.token_type", [1, 1, 6]),
        key("some.flag", BOOL, b"\x01"),
        key("some.double", 12, struct.pack("<d", 0.5)),
        ints_key("some.list", [3, -4]),
        strings_key("some.names", ["x", "yz"]),
    ]
    header = read_gguf_header(write(tmp_path, GgufBytes(keys=keys, version=version).build()))
    assert header.version == version
    assert header.text("general.architecture") == "llama"
    assert header.integer("llama.context_length") == 2048
    assert header.metadata["some.flag"] is True
    assert header.metadata["some.double"] == 0.5
    assert header.metadata["some.list"] == ArrayValue(INT32, 2, (3, -4))
    assert header.metadata["some.names"] == ArrayValue(STRING, 2, ("x", "yz"))
    assert header.metadata["tokenizer.ggml.tokens"] == ArrayValue(STRING, 3)
    assert [(t.name, t.shape, t.type, t.offset, t.n_bytes) for t in header.tensors] == [
        ("token_embd.weight", (32,), "Q8_0", 0, 34),
        ("blk.0.ffn_up.weight", (32,), "Q8_0", 64, 34),
    ]
    assert header.data_offset % 32 == 0
    assert header.text("absent") is None
    assert header.integer("absent") is None
    with pytest.raises(InvalidModel, match="is not a string"):
        header.text("llama.context_length")
    with pytest.raises(InvalidModel, match="is not an integer"):
        header.integer("some.flag")


def test_other_alignment_and_large_vocabulary(tmp_path: Path) -> None:
    words = [f"token-{number}" * 20 for number in range(20_000)]
    keys = [uint_key("general.alignment", 64), strings_key("tokenizer.ggml.tokens", words)]
    header = read_gguf_header(write(tmp_path, GgufBytes(keys=keys, alignment=64).build()))
    assert header.data_offset % 64 == 0
    assert header.metadata["tokenizer.ggml.tokens"] == ArrayValue(STRING, 20_000)


HUGE = 5124095576030431008

BAD_FILES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "has only 0 bytes"),
    "other format": (b"PK\x03\x04" + b"\0" * 60, "not with GGUF"),
    "big endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big endian"),
    "version 1": (GgufBytes(version=1).build(), "version 1 is not known"),
    "version of the future": (GgufBytes(version=9).build(), "version 9 is not known"),
    "too many keys": (GgufBytes(n_keys=1 << 40).build(), "the number of keys"),
    "too many tensors": (GgufBytes(n_tensors=1 << 60).build(), "the number of tensors"),
    "more keys than there are": (GgufBytes(n_keys=6).build(), "."),
    "key twice": (GgufBytes(keys=[uint_key("a", 1), uint_key("a", 2)]).build(), "is there twice"),
    "key is not UTF-8": (GgufBytes(keys=[key("a", STRING, struct.pack("<Q", 1) + b"\xff")]).build(), "UTF-8"),
    "string of 2^62 bytes": (
        GgufBytes(keys=[key("a", STRING, struct.pack("<Q", 1 << 62))]).build(),
        "more than",
    ),
    "unknown value type": (GgufBytes(keys=[key("a", 77, b"")]).build(), "unknown type 77"),
    "array of arrays": (
        GgufBytes(keys=[key("a", ARRAY, struct.pack("<IQ", ARRAY, 1))]).build(),
        "element type 9",
    ),
    "array longer than the file": (
        GgufBytes(keys=[key("a", ARRAY, struct.pack("<IQ", FLOAT32, 1 << 61))]).build(),
        "longer than the file",
    ),
    "array of 2^61 strings": (
        GgufBytes(keys=[key("a", ARRAY, struct.pack("<IQ", STRING, 1 << 61))]).build(),
        "longer than the file",
    ),
    "alignment 2^31": (
        GgufBytes(keys=[uint_key("general.alignment", 1 << 31)]).build(),
        "alignment is 2147483648",
    ),
    "alignment 0": (GgufBytes(keys=[uint_key("general.alignment", 0)]).build(), "alignment is 0"),
    "alignment 24": (GgufBytes(keys=[uint_key("general.alignment", 24)]).build(), "alignment is 24"),
    "alignment is text": (GgufBytes(keys=[string_key("general.alignment", "32")]).build(), "not an integer"),
    "five dimensions": (GgufBytes(tensors=[Tensor("t", shape=(32, 1, 1, 1, 1))]).build(), "more than 4"),
    "overflowing dimension": (GgufBytes(tensors=[Tensor("t", (HUGE, 4), Q4_0)]).build(), "64 bits"),
    "dimension of 2^63": (GgufBytes(tensors=[Tensor("t", (1 << 63,), F32)]).build(), "more than"),
    "row that is no whole block": (
        GgufBytes(tensors=[Tensor("t", (33,), Q4_0)]).build(),
        "not a multiple of 32",
    ),
    "unknown tensor type": (GgufBytes(tensors=[Tensor("t", type=4)]).build(), "unknown type 4"),
    "tensor name too long": (GgufBytes(tensors=[Tensor("t" * 64)]).build(), "more than 63"),
    "tensor twice": (GgufBytes(tensors=[Tensor("t"), Tensor("t")]).build(), "is there twice"),
    "offset beyond the file": (GgufBytes(tensors=[Tensor("t", offset=1 << 62)]).build(), "not at 0"),
    "overlapping tensors": (GgufBytes(tensors=[Tensor("t"), Tensor("u", offset=0)]).build(), "not at 64"),
    "data missing": (GgufBytes(tensors=[Tensor("t", (64,), data=b"")]).build(), "incomplete"),
    "tokens are no strings": (
        GgufBytes(keys=[ints_key("tokenizer.ggml.tokens", [1])]).build(),
        "array of strings",
    ),
    "token types are floats": (
        GgufBytes(keys=[TOKENS, ints_key("tokenizer.ggml.token_type", [1, 1, 1], kind=FLOAT32)]).build(),
        "array of integers",
    ),
    "token types are text": (
        GgufBytes(keys=[TOKENS, string_key("tokenizer.ggml.token_type", "1")]).build(),
        "array of integers",
    ),
    "scores too short": (
        GgufBytes(keys=[TOKENS, ints_key("tokenizer.ggml.scores", [0, 0], kind=FLOAT32)]).build(),
        "2 elements for 3 tokens",
    ),
    "byte token with a sign": (
        GgufBytes(
            keys=[
                strings_key("tokenizer.ggml.tokens", ["a", "<0x-1>"]),
                ints_key("tokenizer.ggml.token_type", [1, 6]),
            ]
        ).build(),
        "token 1 is a byte token",
    ),
    "byte token of other text": (
        GgufBytes(
            keys=[
                ints_key("tokenizer.ggml.token_type", [1, 6]),
                strings_key("tokenizer.ggml.tokens", ["a", "zz"]),
            ]
        ).build(),
        "token 1 is a byte token",
    ),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_files_are_refused_with_the_reason(tmp_path: Path, name: str) -> None:
    content, reason = BAD_FILES[name]
    with pytest.raises(InvalidModel, match=reason) as caught:
        read_gguf_header(write(tmp_path, content))
    assert caught.value.message.startswith("model.gguf")
    assert str(tmp_path) not in caught.value.message


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidModel, match="cannot be read"):
        read_gguf_header(tmp_path / "absent.gguf")
    with pytest.raises(InvalidModel, match="cannot be read"):
        read_gguf_header(tmp_path)


GOOD = GgufBytes(
    keys=[
        uint_key("llama.context_length", 128),
        strings_key("tokenizer.ggml.tokens", [f"<0x{byte:02X}>" for byte in range(64)]),
        ints_key("tokenizer.ggml.token_type", [6] * 64),
        ints_key("tokenizer.ggml.scores", [0] * 64, kind=FLOAT32),
        string_key("tokenizer.chat_template", "{{ messages }}"),
    ]
).build()


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    assert read_gguf_header(write(tmp_path, GOOD)).tensors
    for length in range(0, len(GOOD), 7):
        with pytest.raises(InvalidModel):
            read_gguf_header(write(tmp_path, GOOD[:length]))


def mutated(seed: int) -> bytes:
    """GOOD with some bytes of its header changed: flipped bits, set bytes, removed or repeated pieces."""
    randomness = random.Random(seed)
    content = bytearray(GOOD)
    for _ in range(randomness.randint(1, 6)):
        at = randomness.randrange(len(content))
        match randomness.randrange(5):
            case 0:
                content[at] ^= 1 << randomness.randrange(8)
            case 1:
                content[at] = randomness.choice((0, 1, 0x7F, 0x80, 0xFF))
            case 2:
                content[at : at + 8] = struct.pack(
                    "<Q", randomness.choice((0, 1, 1 << 31, 1 << 62, (1 << 64) - 1))
                )
            case 3:
                del content[at : at + randomness.randint(1, 16)]
            case _:
                content[at:at] = content[at : at + randomness.randint(1, 16)]
    return bytes(content)


def test_mutations_are_read_or_refused(tmp_path: Path) -> None:
    """Row of 300 seeded mutations: whatever the bytes, the reader ends with a header or with InvalidModel."""
    refused = 0
    for seed in range(300):
        try:
            header = read_gguf_header(write(tmp_path, mutated(seed)))
        except InvalidModel:
            refused += 1
        else:
            assert all(header.data_offset + t.offset + t.n_bytes <= header.file_size for t in header.tensors)
    assert 100 < refused < 300


def test_a_file_that_claims_much_costs_little(tmp_path: Path) -> None:
    """A length in the file never decides how much memory is taken."""
    import tracemalloc

    content = GgufBytes(keys=[key("a", ARRAY, struct.pack("<IQ", FLOAT32, 1 << 33))]).build()
    path = write(tmp_path, content)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidModel):
            read_gguf_header(path)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_tensor_types_agree_with_the_gguf_package() -> None:
    constants = pytest.importorskip("gguf.constants")
    # gguf 0.19 gives Q8_1 four bytes more than ggml does; no file stores that type.
    theirs = {int(kind): sizes for kind, sizes in constants.GGML_QUANT_SIZES.items() if kind.name != "Q8_1"}
    ours = {kind: (entry.block, entry.size) for kind, entry in TENSOR_TYPES.items()}
    assert theirs == {kind: sizes for kind, sizes in ours.items() if kind in theirs}


@pytest.mark.integration
def test_tensor_types_agree_with_the_installed_ggml() -> None:
    import ctypes
    import importlib.util

    found = importlib.util.find_spec("llama_cpp")
    if found is None or found.origin is None:
        pytest.skip("llama_cpp is not installed")
    libraries = sorted(Path(found.origin).parent.glob("lib/*ggml-base*"))
    if not libraries:
        pytest.skip("llama_cpp has no separate ggml-base library here")
    ggml = ctypes.CDLL(str(libraries[0]))
    ggml.ggml_blck_size.restype = ctypes.c_int64
    ggml.ggml_type_size.restype = ctypes.c_size_t
    for kind, entry in TENSOR_TYPES.items():
        assert (ggml.ggml_blck_size(kind), ggml.ggml_type_size(kind)) == (entry.block, entry.size), entry.name
