"""Valid files of all kinds, from which the fuzzed ones are made, and answers of a hub."""

from __future__ import annotations

import gzip
import hashlib
import json
import random
import struct
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from jan_serve.core.measurements import Calibration, SelfCheck
from jan_serve.core.models import Variant
from jan_serve.store.index import FileRecord, ModelEntry, ModelIndex, ModelRecord, Source, VariantIndex
from jan_serve.store.measurements import CalibrationIndex, SelfChecks
from tests.fuzz.mutate import changed, damaged
from tests.support.servers.fake_hub import COMMIT
from tests.unit.config.support import WHOLE
from tests.unit.store.gguf_builder import (
    ARRAY,
    BOOL,
    F32,
    FLOAT32,
    INT32,
    GgufBytes,
    Tensor,
    ints_key,
    key,
    string_key,
    strings_key,
    uint_key,
)

_FLOATS: Final = struct.pack("<32f", *range(32))
_VOCABULARY: Final = (
    string_key("tokenizer.ggml.model", "llama"),
    strings_key("tokenizer.ggml.tokens", ["a", "b", "<0x41>"]),
    ints_key("tokenizer.ggml.token_type", [1, 1, 6]),
    key("tokenizer.ggml.scores", ARRAY, struct.pack("<IQ3f", FLOAT32, 3, 0, -1, -2)),
    string_key("tokenizer.chat_template", "{{ messages }}"),
    uint_key("tokenizer.ggml.fim_pre_token_id", 1),
)
_SHAPE: Final = tuple(
    uint_key(f"llama.{name}", value)
    for name, value in {
        "context_length": 64, "embedding_length": 32, "feed_forward_length": 64, "attention.head_count": 4,
        "attention.head_count_kv": 2, "rope.dimension_count": 8, "pooling_type": 1,
    }.items()
)  # fmt: skip
BASE: Final = GgufBytes(
    keys=(*_SHAPE, *_VOCABULARY),
    tensors=(
        Tensor("token_embd.weight", (32, 3), data=bytes(3 * 34)),
        Tensor("blk.0.attn_norm.weight", (32,), F32, _FLOATS),
        Tensor("blk.0.ffn_up.weight", (32, 2), data=bytes(2 * 34)),
    ),
).build()
"""A model that can be read, not run."""

MODELS: Final = (
    BASE,
    GgufBytes(keys=_SHAPE, extra={"general.name": "n"}, version=2).build(),
    GgufBytes(
        keys=(
            uint_key("general.alignment", 64), uint_key("general.file_type", 7), key("a.flag", BOOL, b"\x01"),
            key("a.double", 12, struct.pack("<d", 0.5)), key("a.long", 11, struct.pack("<q", -1)),
            ints_key("mamba.attention.head_count_kv", [0, 2, 0], INT32), strings_key("a.names", ["x", "yz"]),
        ),
        architecture="mamba", n_layer=3, alignment=64,
    ).build(),
    GgufBytes(
        keys=(key("clip.has_vision_encoder", BOOL, b"\x01"), string_key("general.type", "mmproj")),
        tensors=(Tensor("mm.2.weight", (32, 4), F32, _FLOATS * 4),), architecture="clip",
    ).build(),
    GgufBytes(keys=(uint_key("split.count", 2), uint_key("split.no", 0))).build(),
)  # fmt: skip

TENSORS: Final = (
    GgufBytes(architecture=None, tensors=(Tensor("blk.0.attn_norm.weight", (32,), F32, _FLOATS),)).build(),
    GgufBytes(
        tensors=(
            Tensor("blk.0.ffn_up.weight", (32, 2), F32, _FLOATS * 2),
            Tensor("token_embd.weight", (32, 3), data=bytes(range(102))),
        )
    ).build(),
)
"""Files of some of BASE's tensors."""

ENTRY: Final = ModelEntry("m", Path("m.gguf"), 7, 5, "models folder")
_RECORD: Final = ModelRecord(
    name="m",
    source=Source(kind="hub", name="org/repo", revision=COMMIT, endpoint="http://hub"),
    files=(FileRecord(path="m.gguf", size_bytes=7, sha256="0" * 64),),
    projector=FileRecord(path="mmproj.gguf", size_bytes=9),
    modified_ns=5,
    added_at=1.5,
    aliases=("other",),
)
_CHECK: Final = SelfCheck(
    version="1.0.0", llama_cpp="0.3", at=1.0, answers={"a": "1"}, prompt_per_s=9.0, tokens_per_s=9.0,
    devices={"CPU": 1}, free_bytes=1,
)  # fmt: skip
_WRITERS: Final[dict[str, Callable[[Path], None]]] = {
    "record": lambda place: ModelIndex(place).put(_RECORD),
    "variant": lambda place: VariantIndex(place).put(
        Variant(name="mario", base="m", created_at=1.5, system="Be Mario.")
    ),
    "calibration": lambda place: CalibrationIndex(place).put(
        ENTRY,
        Calibration(
            temperature=1.5, examples=9, accuracy=0.5, loss_before=1.0, loss_after=0.5, at_bound=False
        ),
    ),
    "self-check": lambda place: SelfChecks(place).put(_CHECK),
}


def _state() -> dict[str, tuple[Path, bytes]]:
    """The files as we write them: where they lie in the folder that they are in, and their bytes."""
    found: dict[str, tuple[Path, bytes]] = {}
    for name, write in _WRITERS.items():
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder))
            (path,) = Path(folder).rglob("*.json")
            found[name] = path.relative_to(folder), path.read_bytes()
    node = {"url": "http://127.0.0.1:9", "role": 1, "models": ["m"], "speed": 1.5, "declares": True}
    found["nodes"] = Path("fleet.json"), msgspec.json.encode({"version": 1, "nodes": [node, node]})
    cluster = {
        "proxy_url": "http://127.0.0.1:9",
        "proxy_key": "k",
        "replicas": {"max": 2},
        "serve": {"n_ctx": 512},
    }
    record = {"address": "127.0.0.1:6379", "file": cluster, "head": None}
    found["cluster"] = Path("cluster.json"), msgspec.json.encode(record)
    return found


STATE: Final = _state()

CONFIGURED_FILES: Final = ("mine.jinja", "adapters/sql.gguf", "poet.gguf")
"""Named by the first of CONFIGS."""
CONFIGS: Final = (
    WHOLE,
    'host = "127.0.0.1"\nport = 8080\nalso_listen = [11434]\napi_keys = ["secret"]\nallowed_origins = ["*"]\n'
    'open_networks = ["192.168.1.0/24"]\nmemory_budget = "8GB"\ncache_disk_mib = 2048\nlog_file = "log.txt"\n'
    'models_dir = "~/models"\nrequest_timeout_s = 1e3\ndevice = "CPU"\nrpc = ["10.0.0.1:50052"]\nno_auth = true\n',
    'proxy_url = "http://10.0.0.1:8000"\nproxy_key = """k"""\nray_port = 6379\n[replicas]\nmin = 1\nmax = 0x10\n'
    "per_machine = 4\ngrow_s = 1_0.5\n[serve]\nn_ctx = 4096\nparallel = 2\nseen = 1979-05-27T07:32:00Z\n",
)

CONFIG_VALUES: Final = tuple(tomllib.loads(text) for text in CONFIGS)


def as_toml(value: Any) -> str:
    """A file with these values, in one line each. Values that TOML does not have become strings."""
    if not isinstance(value, dict):
        return _inline(value)
    return "".join(
        f"{_inline(str(name))} = {_inline(part)}\n" for name, part in cast(dict[str, Any], value).items()
    )


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        items = cast(dict[str, Any], value).items()
        return "{" + ", ".join(f"{_inline(str(name))} = {_inline(part)}" for name, part in items) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_inline, cast(list[Any], value))) + "]"
    if isinstance(value, bool | int | float):
        return str(value).lower()
    return json.dumps(str(value)).replace("\x7f", "\\u007f")


_LOCATIONS: Final = (
    "http://10.0.0.1/x", "http://[::1", "http://u:p@{}/x", "ftp://{}/x", "http://{}/api/again", "/api/x", "", "//",
    "https://{}/x", "http://127.0.0.1:99999/x", "http://0x7f.1:9/", "http://[fe80::1%25lo]/", "?", "javascript:1",
    "\\\\x",
)  # fmt: skip
_HEADERS: Final = (
    "Retry-After: {}", "Content-Encoding: {}", "Transfer-Encoding: chunked", "X-Error-Code: {}", "ETag: {}",
    "Content-Type: text/html; charset={}", "Content-Range: bytes 0-{}/9", "Set-Cookie: a={}", "X-Linked-Size: {}",
    "Content-Length: {}",
)  # fmt: skip
_WORDS: Final = (
    "0", "-1", "9" * 5_000, "1e9", "gzip", "br", "identity", "GatedRepo", "RepoNotFound", "EntryNotFound", "é", "nan",
    "Wed, 21 Oct 2099 07:28:00 GMT", "Wed, 99 Oct 10000 07:28:00 GMT", "", "*", "\t",
)  # fmt: skip
_STATUSES: Final = (200, 200, 200, 206, 204, 301, 302, 307, 400, 401, 403, 404, 416, 429, 500, 503, 999, 100)


def hub_answers(draw: random.Random, authority: str) -> tuple[bytes, bytes]:
    """The listing of a repository and its only file, with damage in at least one of both."""
    content = GgufBytes().build()
    file = {"rfilename": "m-Q8_0.gguf", "size": len(content), "lfs": {
        "sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}}  # fmt: skip
    readme = {"rfilename": "README.md", "size": 9, "blobId": "b" * 40}
    listing = {"id": "org/repo", "sha": COMMIT, "gated": False, "siblings": [file, readme]}
    if draw.random() < 0.4:
        listing = changed(draw, listing, rounds=4)
    damage = draw.choice(("listing", "file", "both"))
    body = json.dumps(listing).encode()
    return (
        _answer(draw, body, authority, is_damaged=damage != "file"),
        _answer(draw, content, authority, is_damaged=damage != "listing"),
    )


def _answer(draw: random.Random, body: bytes, authority: str, *, is_damaged: bool) -> bytes:
    status, headers = 200, ["Connection: close"]
    sent = body
    if is_damaged:
        match draw.randrange(5):
            case 0:
                status = draw.choice(_STATUSES)
                headers.append("Location: " + draw.choice(_LOCATIONS).replace("{}", authority))
            case 1:
                headers += [each.replace("{}", draw.choice(_WORDS)) for each in draw.choices(_HEADERS, k=2)]
                status = draw.choice(_STATUSES)
            case 2:
                sent = damaged(draw, body, (body,))
            case 3:
                headers.append("Content-Encoding: gzip")
                sent = damaged(draw, gzip.compress(body * draw.choice((1, 1, 50))))
            case _:
                return _whole(status, headers, body, draw)
    return _head(status, headers, len(sent) if draw.random() < 0.8 else len(body)) + sent


def _whole(status: int, headers: list[str], body: bytes, draw: random.Random) -> bytes:
    """Damage anywhere in it. No header leads elsewhere: there is none with an address."""
    return damaged(draw, _head(status, headers, len(body)) + body)


def _head(status: int, headers: list[str], length: int) -> bytes:
    lines = [f"HTTP/1.1 {status} Some", f"Content-Length: {length}", *headers, "", ""]
    return "\r\n".join(lines).encode("utf-8")
