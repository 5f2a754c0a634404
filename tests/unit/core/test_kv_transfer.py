"""The text in which servers hand endpoints of peers over, and states of sequences as bytes."""

from __future__ import annotations

import struct
from hashlib import blake2b
from typing import Any

import msgspec
import pytest

from jan_serve.core.kv_transfer import PeerEndpoint, SequenceState, StateIdentity, decode_state, encode_state
from jan_serve.errors import InvalidRequest, InvalidState

KEY = "A" * 43 + "="


def test_endpoints_come_back_from_their_text() -> None:
    endpoint = PeerEndpoint("::1", 65_535, "link", bytes(range(32)))
    assert PeerEndpoint.from_text(endpoint.to_text(), "x") == endpoint


def test_the_text_is_that_of_every_version() -> None:
    key = b"\xfb\xff" * 16
    text = '{"host":"h","port":9,"link":"l","key":"-__7__v_-__7__v_-__7__v_-__7__v_-__7__v_-_8="}'
    assert PeerEndpoint("h", 9, "l", key).to_text() == text
    assert PeerEndpoint.from_text(text, "x").key == key


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[1]",
        "x" * 2000,
        '{"x":' + "[" * 1000,
        '{"host":"h","port":1,"key":"AA=="}',
        f'{{"host":"h","port":0,"key":"{KEY}"}}',
        f'{{"host":"","port":9,"key":"{KEY}"}}',
        f'{{"host":"h","port":70000,"key":"{KEY}"}}',
        '{"host":"h","port":9,"key":"é"}',
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="remote_kvtransfer_endpoint_info"):
        PeerEndpoint.from_text(text, "remote_kvtransfer_endpoint_info")


HERE = StateIdentity(model="ab" * 32, type_k="f16", type_v="q8_0", llama_state=3)
STATE = SequenceState(
    tokens=(1, 2, 70_000),
    seed=2**32 - 1,
    next_token=5,
    logits=bytes(range(16)),
    memory=memoryview(b"m" * 1000),
)


def encoded(identity: StateIdentity = HERE) -> bytes:
    return b"".join(encode_state(STATE, identity))


def test_it_comes_back_as_it_was() -> None:
    found = decode_state(encoded(), HERE)
    assert (found.tokens, found.seed, found.next_token) == (STATE.tokens, STATE.seed, STATE.next_token)
    assert (bytes(found.logits), bytes(found.memory)) == (STATE.logits, bytes(STATE.memory))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": "cd" * 32}, "another model"),
        ({"type_k": "f32"}, "types f32 and q8_0, and this one f16 and q8_0"),
        ({"type_v": "f16"}, "types f16 and f16"),
        ({"llama_state": 4}, "version 2.4, and this server reads 2.3"),
        ({"rope_factors": "long"}, "it has the long RoPE factors, and this one the usual ones"),
        ({"format": 1}, "version 1.3"),
    ],
)
def test_another_identity_is_named(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidState, match=words):
        decode_state(encoded(msgspec.structs.replace(HERE, **changes)), HERE)


def test_a_state_of_a_server_without_rope_factors_in_its_identity_is_refused() -> None:
    old = {name: getattr(HERE, name) for name in ("model", "type_k", "type_v", "llama_state")}
    data = forged({"identity": {**old, "format": 1}})
    with pytest.raises(InvalidState, match=r"version 1\.3, and this server reads 2\.3"):
        decode_state(data, HERE)


def forged(changes: dict[str, object]) -> bytes:
    """A state whose header is changed, with the right checksum."""
    data = encoded()
    (size,) = struct.unpack_from("<I", data, 4)
    known: dict[str, object] = msgspec.msgpack.decode(data[8 : 8 + size])
    header = msgspec.msgpack.encode({**known, **changes})
    return with_header(data, header)


def with_header(data: bytes, header: bytes) -> bytes:
    (size,) = struct.unpack_from("<I", data, 4)
    body = data[:4] + struct.pack("<I", len(header)) + header + data[8 + size : -32]
    return body + blake2b(body, digest_size=32).digest()


def test_every_cut_and_every_flipped_byte_is_seen() -> None:
    data = encoded()
    for end in range(0, len(data), 7):
        with pytest.raises(InvalidState):
            decode_state(data[:end], HERE)
    for at in range(0, len(data), 5):
        with pytest.raises(InvalidState):
            decode_state(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], HERE)


@pytest.mark.parametrize(
    "changes",
    [
        None,
        {"memory_bytes": 1 << 40},
        {"logits_bytes": -16},
        {"memory_bytes": 0, "logits_bytes": 1016},
        {"tokens": []},
        {"tokens": "text"},
        {"identity": {}},
    ],
)
def test_a_forged_header_with_the_right_checksum_is_refused(changes: dict[str, object] | None) -> None:
    data = encoded()
    (size,) = struct.unpack_from("<I", data, 4)
    with pytest.raises(InvalidState):
        decode_state(with_header(data, b"\xff" * size) if changes is None else forged(changes), HERE)


def test_a_forged_header_that_nests_without_end_is_refused() -> None:
    header = b"\x81\xa1x" + b"\x91" * 9_999
    body = encoded()[:4] + struct.pack("<I", len(header)) + header
    with pytest.raises(InvalidState, match="another form"):
        decode_state(body + blake2b(body, digest_size=32).digest(), HERE)
