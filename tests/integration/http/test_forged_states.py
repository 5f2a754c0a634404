"""States that a linked peer forges: each is a clear refusal, and the server keeps its own and answers on.

The peer knows the key of its link. It first fetches a state of a real server, as a peer does.
"""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Callable, Generator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from jan_serve.core.kv_transfer import PeerEndpoint
from jan_serve.supervisor.kv_transfer.peer_connection import (
    PART_BYTES,
    Done,
    Fetch,
    Found,
    Ping,
    accept,
    connect,
    decode_request,
    encode,
)
from jan_serve.supervisor.kv_transfer.state_transfer import pull
from tests.integration.http.test_distserve import COMPLETION, Engine, engine, prefilled, resumed
from tests.support.clients.raw_http import get, post
from tests.support.gguf.models import exact_llama as exact_llama
from tests.support.processes import wait_until
from tests.unit.supervisor.kv_transfer.peers import FakeWorker

pytestmark = pytest.mark.integration

FORGER: Final = "http://127.0.0.1:1"
KEY: Final = b"k" * 32
_DIGEST: Final = 32
Answer = Sequence[bytes | bytearray]
"""Bodies of records, or raw bytes if they are a bytearray. After those of a tuple, it leaves."""


class Forger:
    """A peer that answers each Fetch with these records. It lives in a thread."""

    def __init__(self) -> None:
        self.records: Answer = ()
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._started.wait(20)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(20)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        self._loop.run_forever()
        server.close()
        self._loop.run_until_complete(server.wait_closed())
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            _, connection = await accept(reader, writer, lambda _: KEY, handshake_s=20, patience_s=20)
            while (body := await connection.receive()) is not None:
                request = decode_request(body)
                if not isinstance(request, Fetch):
                    await connection.send(encode(Done()))
                    continue
                for record in self.records:
                    if isinstance(record, bytearray):
                        writer.write(record)
                    else:
                        await connection.send(record)
                if isinstance(self.records, tuple):  # it leaves
                    break
        finally:
            writer.close()

    @property
    def endpoint(self) -> str:
        return PeerEndpoint("127.0.0.1", self.port, "link", KEY).to_text()


@pytest.fixture(scope="module")
def forger() -> Generator[Forger]:
    one = Forger()
    yield one
    one.close()


@pytest.fixture(scope="module")
def decode(tmp_path_factory: pytest.TempPathFactory, exact_llama: Path, forger: Forger) -> Generator[Engine]:
    """A server that is linked with the forger."""
    with engine(tmp_path_factory.mktemp("decode"), exact_llama) as one:
        endpoints = initialized(one)
        endpoints["kvtransfer_endpoint_info"][0]["endpoint_info"] = forger.endpoint
        body = {
            "protocol": 1,
            "remote_engine_id": FORGER,
            "remote_engine_endpoint_info": endpoints["engine_endpoint_info"],
            "remote_kvtransfer_endpoint_info": endpoints["kvtransfer_endpoint_info"],
        }
        assert one.call("/distserve/p2p_connect", body) == {"status": 1}
        yield one


def initialized(one: Engine) -> dict[str, Any]:
    """What a server offers to the forger."""
    body = {
        "protocol": 1,
        "local_engine_id": one.url,
        "local_engine_config": one.info(),
        "remote_engine_id": FORGER,
        "remote_engine_config": one.info(),
    }
    return one.call("/distserve/p2p_initialize", body)


class Prefilled:
    """The reply of a real server to a prompt, and its state."""

    def __init__(self, reply: dict[str, Any], state: bytes) -> None:
        self.reply, self.state = reply, state


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory, exact_llama: Path) -> Prefilled:
    with engine(tmp_path_factory.mktemp("prefill"), exact_llama) as one:
        offered = initialized(one)["kvtransfer_endpoint_info"][0]["endpoint_info"]
        endpoint = PeerEndpoint.from_text(offered, "x")
        reply = prefilled(one, *COMPLETION)
        taker = FakeWorker()

        async def fetch() -> None:
            connection = await connect(
                endpoint.host, endpoint.port, endpoint.name, endpoint.key, connect_s=20, patience_s=20
            )
            await pull(connection, int(reply["id"]), taker, 1)
            await connection.close()

        asyncio.run(fetch())
        return Prefilled(reply, bytes(taker.states[1]))


def parts(state: bytes, total: int | None = None) -> list[bytes]:
    """The records of a whole transfer."""
    pieces = [state[at : at + PART_BYTES] for at in range(0, len(state), PART_BYTES)]
    return [encode(Found(len(state) if total is None else total)), *pieces]


def signed(body: bytes) -> bytes:
    """A state with a right checksum."""
    return body + blake2b(body, digest_size=_DIGEST).digest()


def head_of(state: bytes) -> int:
    """Where its head ends."""
    return 8 + int(struct.unpack_from("<I", state, 4)[0])


def flipped(state: bytes, at: int) -> bytes:
    return state[:at] + bytes([state[at] ^ 0x41]) + state[at + 1 :]


def with_head(state: bytes, **changes: object) -> bytes:
    end = head_of(state)
    head = msgspec.msgpack.encode({**msgspec.msgpack.decode(state[8:end]), **changes})
    return signed(state[:4] + struct.pack("<I", len(head)) + head + state[end:-_DIGEST])


def with_identity(state: bytes, **changes: object) -> bytes:
    known = msgspec.msgpack.decode(state[8 : head_of(state)])["identity"]
    return with_head(state, identity={**known, **changes})


DEEP: Final = b"\x81\xa1x" + b"\x91" * 9_999
FORGED: Final[dict[str, tuple[Callable[[bytes], Answer], int, str]]] = {
    "damaged": (lambda state: parts(flipped(state, len(state) // 2)), 400, "checksum is wrong"),
    "no state": (lambda state: parts(bytes(len(state))), 400, "not the state of a sequence"),
    "another model": (lambda state: parts(with_identity(state, model="ab" * 32)), 400, "another model"),
    "other types": (lambda state: parts(with_identity(state, type_k="q8_0")), 400, "types q8_0 and"),
    "lengths that cannot be": (lambda state: parts(with_head(state, memory_bytes=1 << 40)), 400, "incomplete"),
    "no tokens": (lambda state: parts(with_head(state, tokens=[])), 400, "empty"),
    "another prompt": (lambda state: parts(with_head(state, tokens=[5, 6, 7])), 400, "another prompt"),
    "deep": (lambda state: parts(signed(state[:4] + struct.pack("<I", len(DEEP)) + DEEP)), 400, "another form"),
    "cut": (lambda state: parts(signed(state[: len(state) // 2])), 400, "incomplete"),
    "shorter than announced": (lambda state: (*parts(state, len(state) + 9),), 503, "broke off"),
    "longer than announced": (lambda state: parts(state, 100), 400, "do not fit together"),
    "larger than the memory": (lambda state: parts(state, 1 << 39), 429, "There is no room"),
    "larger than anything": (lambda state: parts(state, 1 << 62), 503, "did not say how large"),
    "an empty record": (lambda state: [encode(Found(9)), b""], 503, "broke off"),
    "an endless record": (lambda state: [bytearray(b"\xff\xff\xff\x7f")], 503, "a record of 2147483647 bytes"),
    "a forged record": (lambda state: [bytearray(struct.pack("<I", 3) + b"abc" + bytes(16))], 503, "changed"),
    "no message": (lambda state: [b"\xc1"], 503, "not known here"),
    "a request": (lambda state: [encode(Ping())], 503, "not known here"),
}  # fmt: skip
"""By what is wrong: the records, and the status and words of the refusal."""


def resume(decode: Engine, real: Prefilled, status: int = 200) -> Any:
    path, body = COMPLETION
    request = resumed(decode, decode, path, body, real.reply)
    request["migration_request"]["remote_engine_id"] = FORGER
    return decode.call(path, request, status=status)


@pytest.mark.parametrize("name", FORGED)
def test_it_is_refused_and_nothing_is_left(
    name: str, decode: Engine, forger: Forger, real: Prefilled
) -> None:
    forge, status, words = FORGED[name]
    forger.records = forge(real.state)
    assert words in resume(decode, real, status)["message"]
    wait_until(lambda: decode.sockets() == 0)
    forger.records = parts(real.state)
    again = resume(decode, real)
    path, body = COMPLETION
    own = decode.call(path, {"model": decode.model, **body})
    assert again["choices"][0]["text"] == own["choices"][0]["text"]
    wait_until(lambda: decode.sockets() == 0)
    wait_until(lambda: decode.states() == 0)


@pytest.mark.parametrize("at", [0, 8, 16, 40, 100])
def test_memory_that_is_none_ends_the_worker_at_most(
    at: int, decode: Engine, forger: Forger, real: Prefilled
) -> None:
    """With a right checksum, llama.cpp alone can tell."""
    body = real.state[:-_DIGEST]
    start = len(body) - int(msgspec.msgpack.decode(body[8 : head_of(body)])["memory_bytes"])
    forger.records = parts(signed(flipped(body, start + at)))
    path, prompt = COMPLETION
    request = resumed(decode, decode, path, prompt, real.reply)
    request["migration_request"]["remote_engine_id"] = FORGER
    assert post(decode.url, path, request).status in (200, 400, 503)
    assert get(decode.url, "/health").status == 200
    forger.records = parts(real.state)
    assert resume(decode, real)["choices"][0]["text"]
