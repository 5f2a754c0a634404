"""What is fuzzed: each target opens once, then takes one damaged input at a time and names its outcome."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import struct
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from jan_serve.audio_files import MAX_SECONDS
from jan_serve.audio_files import checked_header as checked_audio_header
from jan_serve.core.constraint import (
    CompiledGrammar,
    Constraint,
    GbnfConstraint,
    JsonSchemaConstraint,
    RegexConstraint,
)
from jan_serve.core.kv_transfer import SequenceState, StateIdentity, decode_state, encode_state
from jan_serve.core.messages import Message
from jan_serve.core.request import ChatPrompt, RenderRequest
from jan_serve.dialects.openai.transcriptions import transcription_form
from jan_serve.errors import InvalidState, JanServeError, PeerFailed, ProtocolError
from jan_serve.helpers.kinds import (
    COMPILING,
    DECODING,
    RENDERING,
    DecodeAudio,
    DecodeImage,
)
from jan_serve.helpers.pool import HelperPool
from jan_serve.http.multipart import form_fields
from jan_serve.image_files import checked_header, shown_size
from jan_serve.ipc.channel import EVENTS, REQUESTS
from jan_serve.supervisor.kv_transfer.peer_connection import decode_answer as decode_peer_answer
from jan_serve.supervisor.kv_transfer.peer_connection import decode_request as decode_peer_request
from tests.conformance.llguidance_oracle import LlguidanceOracle
from tests.fuzz import files, in_process, seeds
from tests.fuzz.in_process import Helpers, Opener
from tests.fuzz.judging import ANSWER_S, Finding, Fuzz, judging
from tests.fuzz.mutate import changed, damaged, rewritten
from tests.support.servers.front_process import front_process


def _decoders() -> Helpers:
    return HelperPool(DECODING)


def _compilers() -> Helpers:
    return HelperPool(COMPILING)


def _renderers() -> Helpers:
    return HelperPool(RENDERING)


@asynccontextmanager
async def images(opened: Opener = _decoders) -> AsyncGenerator[Fuzz]:
    pool = opened()

    async def one(draw: random.Random) -> str:
        data = damaged(draw, draw.choice(seeds.IMAGES), seeds.IMAGES)
        try:
            with judging(data):
                header = checked_header(data)
                size = shown_size(*header.upright_size)
                pixels = await pool.ask(DecodeImage(data=data, header=header, size=size))
        except JanServeError as error:
            return error.code
        if len(pixels) != 3 * size[0] * size[1]:
            raise Finding(f"{len(pixels)} bytes for {size}", data)
        return "decoded"

    try:
        yield one
    finally:
        await pool.close()


@asynccontextmanager
async def sounds(opened: Opener = _decoders) -> AsyncGenerator[Fuzz]:
    pool = opened()

    async def one(draw: random.Random) -> str:
        data, rate = (
            damaged(draw, draw.choice(seeds.SOUNDS), seeds.SOUNDS),
            draw.choice((8_000, 16_000, 24_000)),
        )
        try:
            with judging(data):
                header = checked_audio_header(data)
                samples = await pool.ask(DecodeAudio(data=data, header=header, rate=rate))
        except JanServeError as error:
            return error.code
        if len(samples) % 4 or len(samples) // 4 > MAX_SECONDS * rate:
            raise Finding(f"{len(samples)} bytes for {header.seconds:g} s at {rate}", data)
        return "decoded"

    try:
        yield one
    finally:
        await pool.close()


def constraints(
    make: Callable[[random.Random], Constraint], opened: Opener = _compilers
) -> Callable[[], AbstractAsyncContextManager[Fuzz]]:
    """Compiled in the product's process; llguidance takes whatever it prints."""

    @asynccontextmanager
    async def target() -> AsyncGenerator[Fuzz]:
        pool, oracle = opened(), LlguidanceOracle()

        async def one(draw: random.Random) -> str:
            constraint = make(draw)
            data = repr(constraint).encode("utf-8", "backslashreplace")
            try:
                with judging(data):
                    compiled = await pool.ask(constraint)
            except JanServeError as error:
                return error.code
            assert isinstance(compiled, CompiledGrammar)
            try:
                oracle.compile(compiled.lark)
            except ValueError as error:
                if "too " in str(error) or "limit" in str(error):
                    return "too large for llguidance"
                raise Finding(f"llguidance: {error}", data) from error
            return "compiled"

        try:
            yield one
        finally:
            await pool.close()

    return target


def _schema(draw: random.Random) -> Constraint:
    return JsonSchemaConstraint(changed(draw, draw.choice(seeds.SCHEMAS), seeds.SCHEMAS, rounds=4))


def _regex(draw: random.Random) -> Constraint:
    return RegexConstraint(rewritten(draw, draw.choice(seeds.PATTERNS), seeds.PATTERNS))


def _gbnf(draw: random.Random) -> Constraint:
    return GbnfConstraint(rewritten(draw, draw.choice(seeds.GRAMMARS), seeds.GRAMMARS))


@asynccontextmanager
async def templates(opened: Opener = _renderers) -> AsyncGenerator[Fuzz]:
    pool = opened()

    async def one(draw: random.Random) -> str:
        kwargs = changed(draw, seeds.KWARGS, (*seeds.SCHEMAS, seeds.KWARGS))
        if draw.random() < 0.3:
            source = seeds.KWARGS_TEMPLATE
        else:
            templates = (*seeds.TEMPLATES, seeds.KWARGS_TEMPLATE)
            source = rewritten(draw, draw.choice(templates), templates)
        prompt = ChatPrompt(
            messages=tuple(Message(role=role, content=text) for role, text in seeds.MESSAGES),
            template_kwargs=cast(dict[str, Any], kwargs) if isinstance(kwargs, dict) else {},
        )
        request = RenderRequest(
            prompt=prompt,
            template=source,
            bos_token="<s>",
            eos_token="</s>",
            now=datetime(2026, 1, 2, tzinfo=UTC),
        )
        data = f"{source}\n{kwargs!r}".encode("utf-8", "surrogatepass")
        try:
            with judging(data):
                await pool.ask(request)
        except JanServeError as error:
            return error.code
        return "rendered"

    try:
        yield one
    finally:
        await pool.close()


@asynccontextmanager
async def frames() -> AsyncGenerator[Fuzz]:
    """Messages between the server and a worker, and between linked servers."""

    async def one(draw: random.Random) -> str:
        data = damaged(draw, draw.choice(seeds.FRAMES), seeds.FRAMES)
        outcomes: list[str] = []
        for decode in (REQUESTS.decode, EVENTS.decode, decode_peer_request, decode_peer_answer):
            try:
                decode(data)
            except (ProtocolError, PeerFailed):
                outcomes.append("rejected")
            except Exception as error:
                raise Finding(f"{decode.__name__}: {type(error).__name__}: {error}", data) from error
            else:
                outcomes.append("taken")
        return " ".join(outcomes)

    yield one


@asynccontextmanager
async def states() -> AsyncGenerator[Fuzz]:
    """States of sequences that other servers send, with a right checksum half of the time."""
    identity = StateIdentity(model="m", type_k="f16", type_v="f16", llama_state=1)
    state = SequenceState(
        tokens=(1, 2, 3),
        seed=4,
        next_token=5,
        logits=struct.pack("<3f", 1, 2, 3),
        memory=memoryview(b"memory"),
    )
    whole = b"".join(encode_state(state, identity))
    *parts, digest = encode_state(state, identity)
    body = b"".join(parts)

    async def one(draw: random.Random) -> str:
        from hashlib import blake2b

        if draw.random() < 0.5:
            data = damaged(draw, whole)
        else:
            data = damaged(draw, body)
            data += blake2b(data, digest_size=len(digest)).digest()
        try:
            with judging(data):
                decode_state(data, identity)
        except InvalidState:
            return "rejected"
        return "taken"

    yield one


@asynccontextmanager
async def http() -> AsyncGenerator[Fuzz]:
    """Raw bytes on a connection of a whole server, over a worker that answers at once."""
    async with _front() as (port, check):

        async def one(draw: random.Random) -> str:
            data = damaged(draw, draw.choice(seeds.REQUESTS), seeds.REQUESTS)
            status = await _sent(port, data)
            await check(data)
            return status

        yield one


@asynccontextmanager
async def bodies() -> AsyncGenerator[Fuzz]:
    """Changed JSON bodies at the routes of every dialect."""
    values = [body for _, body in seeds.BODIES]
    async with _front() as (port, check):

        async def one(draw: random.Random) -> str:
            path, body = draw.choice(seeds.BODIES)
            content = json.dumps(changed(draw, body, values)).encode()
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            data = f"{head}Connection: close\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content
            status = await _sent(port, data)
            if status == "closed":
                raise Finding("no answer", data)
            await check(data)
            return status

        yield one


@asynccontextmanager
async def forms() -> AsyncGenerator[Fuzz]:
    """Forms with a sound, and the type that says where their fields end."""

    async def one(draw: random.Random) -> str:
        content_type = (
            rewritten(draw, seeds.FORM_TYPE, (seeds.FORM_TYPE,)) if draw.random() < 0.2 else seeds.FORM_TYPE
        )
        content = damaged(draw, draw.choice(seeds.FORMS), seeds.FORMS)
        data = content_type.encode("utf-8", "surrogatepass") + b"\n" + content
        try:
            with judging(data):
                transcription_form(form_fields(content_type, content))
        except JanServeError as error:
            return error.code
        return "read"

    yield one


@asynccontextmanager
async def _front() -> AsyncGenerator[tuple[int, Callable[[bytes], Awaitable[None]]]]:
    """A server's port, and a check that it is well."""
    with tempfile.TemporaryDirectory() as folder, front_process(Path(folder), 0.0, timeout_s=0.5) as front:

        async def check(data: bytes) -> None:
            status = await _sent(front.port, seeds.HEALTH)
            if status != "200" or front.process.poll() is not None:
                raise Finding(f"/health: {status}, exit status {front.process.poll()}", data)

        yield front.port, check


async def _sent(port: int, data: bytes) -> str:
    """The status of the first answer, or `closed`. Raises Finding for a fault of the server, or no end in time."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(ANSWER_S):
            with contextlib.suppress(OSError):  # ENOTCONN of write_eof is no ConnectionError
                writer.write(data)
                await writer.drain()
                writer.write_eof()
            answer = bytearray()
            with contextlib.suppress(ConnectionError):
                while piece := await reader.read(1 << 16):
                    answer += piece
    except TimeoutError:
        raise Finding(f"the connection is open after {ANSWER_S:g} s", data) from None
    finally:
        writer.close()
    while answer.startswith(b"HTTP/1.1 100 "):
        del answer[: answer.index(b"\r\n\r\n") + 4]
    if not answer:
        return "closed"
    status = answer.split(b" ", 2)[1].decode() if answer.startswith(b"HTTP/1.1 ") else "no status"
    if status not in seeds.STATUSES:
        raise Finding(f"status {status}: {bytes(answer[:400])!r}", data)
    return status


TARGETS: Final[dict[str, Callable[[], AbstractAsyncContextManager[Fuzz]]]] = {
    "images": images,
    "sounds": sounds,
    "gguf": files.gguf,
    "schema": constraints(_schema),
    "regex": constraints(_regex),
    "gbnf": constraints(_gbnf),
    "templates": templates,
    "frames": frames,
    "states": states,
    "http": http,
    "bodies": bodies,
    "forms": forms,
    "tensors": files.tensors,
    "records": files.records,
    "settings": files.settings,
    "hub": files.hub,
    "loads": files.loads,
}

GUIDED: Final[dict[str, Callable[[], AbstractAsyncContextManager[Fuzz]]]] = {
    "images": partial(images, in_process.decoders),
    "sounds": partial(sounds, in_process.decoders),
    "gguf": files.gguf,
    "schema": constraints(_schema, in_process.compilers),
    "regex": constraints(_regex, in_process.compilers),
    "gbnf": constraints(_gbnf, in_process.compilers),
    "templates": partial(templates, in_process.renderers),
    "frames": frames,
    "states": states,
    "forms": forms,
    "tensors": files.tensors,
    "records": files.records,
    "settings": files.settings,
    "hub": files.hub,
}
"""The targets whose code runs in this process: those a coverage-guided fuzzer can follow."""
