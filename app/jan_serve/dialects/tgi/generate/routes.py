"""TGI's native routes that generate or tokenise, at the root and under /tgi; the tokens of a prompt in TGI's form."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.core.messages import ImagePart, TextPart
from jan_serve.core.request import PartsPrompt
from jan_serve.dialects.shared.answers import Chunks, Events, answer_whole
from jan_serve.dialects.tgi.errors import stream_error_body
from jan_serve.dialects.tgi.generate.parse import (
    CompatRequest,
    GenerateRequest,
    GenerateResponse,
    SimpleToken,
    prompt_with_images,
)
from jan_serve.dialects.tgi.generate.render import TokenStream, WholeAnswer
from jan_serve.dialects.tgi.serving import Job, NativeRequest, RequestLease, Serving, answer_headers
from jan_serve.generation.service import LeasedModel
from jan_serve.http.disconnect import while_connected
from jan_serve.http.replies import json_reply
from jan_serve.http.sse import STREAMED

_SPACES: Final = re.compile(rb"\s*")


def spans(text: str, tokens: Sequence[int], pieces: Sequence[bytes]) -> list[SimpleToken]:
    """The bytes of the text that each token covers, end excluded. Added tokens cover none: from 0 to 0.

    pieces: the bytes of each token; of special tokens, their names.
    """
    data = text.encode()
    at = word = 0  # word: where the spaces from `at` on end, if it is behind `at`
    found: list[SimpleToken] = []
    for token, piece in zip(tokens, pieces, strict=True):
        # SentencePiece adds a space before the text; some special tokens remove the spaces around them.
        forms = (piece, piece[1:]) if piece.startswith(b" ") else (piece,)
        start, covered = at, _covered(data, at, forms)
        if not covered:
            if word <= at:
                spaces = _SPACES.match(data, at)
                word = at if spaces is None else spaces.end()
            start, covered = word, _covered(data, word, forms)
        if covered:
            at = start + len(covered)
            text = covered.decode("utf-8", "replace")
            found.append({"id": token, "text": text, "start": start, "stop": at})
        else:
            found.append({"id": token, "text": "", "start": 0, "stop": 0})
    return found


def _covered(data: bytes, start: int, forms: Sequence[bytes]) -> bytes:
    """The first of the forms with which the text goes on; empty if there is none."""
    return next((form for form in forms if form and data.startswith(form, start)), b"")


_NO_TOKEN: Final = 0
"""The id of a cell with a part of an image: the vocabulary has none for it."""


async def prompt_tokens(model: LeasedModel, inputs: str, *, add_special: bool = True) -> list[SimpleToken]:
    """See `spans`; each cell of an image covers its Markdown and has no text. Images are not decoded.

    Raises as LeasedModel.count.
    """
    prompt = prompt_with_images(model.facts, inputs, add_special=add_special)
    if prompt is None:
        found = await model.tokenize(inputs, add_special=add_special, with_pieces=True)
        return spans(inputs, found.tokens, found.pieces)
    prompt = await model.fetched(prompt)
    total = await model.count(prompt)
    tokens: list[SimpleToken] = []
    at = 0
    for part in prompt.parts:
        if isinstance(part, ImagePart):
            stop = at + len(f"![]({part.url})".encode())
            cells = await model.count(PartsPrompt((part,), add_special=False))
            cell: SimpleToken = {"id": _NO_TOKEN, "text": "", "start": at, "stop": stop}
            tokens += [cell] * cells
            at = stop
        elif isinstance(part, TextPart):
            found = await model.tokenize(part.text, add_special=False, with_pieces=True)
            tokens += [_moved(token, at) for token in spans(part.text, found.tokens, found.pieces)]
            at += len(part.text.encode())
    bos = model.facts.special_tokens.get("bos")
    if bos is not None and total > len(tokens):
        tokens.insert(0, {"id": bos.id, "text": "", "start": 0, "stop": 0})
    return tokens


def _moved(token: SimpleToken, by: int) -> SimpleToken:
    if token["start"] == token["stop"]:
        return token
    return {**token, "start": token["start"] + by, "stop": token["stop"] + by}


def add_native_routes(router: APIRouter, serving: Serving, prefix: str) -> None:
    @router.post(f"{prefix}/generate", response_model=GenerateResponse)
    async def generate(request: Request, body: GenerateRequest) -> Response:
        """Generate tokens."""
        return await _whole(request, serving, body, full_text=False, as_list=False)

    @router.post(f"{prefix}/generate_stream", response_class=Response, responses=STREAMED)
    async def generate_stream(request: Request, body: GenerateRequest) -> Response:
        """Generate a stream of tokens."""
        return await _stream(request, serving, body, full_text=False)

    async def compat(request: Request, body: CompatRequest) -> Response:
        """Generate tokens, or a stream of them where `stream` is true."""
        return await serve_compat(request, serving, body)

    for path in ("/",) if not prefix else (prefix, f"{prefix}/"):
        router.post(path, response_model=list[GenerateResponse], responses=STREAMED)(compat)

    @router.post(f"{prefix}/tokenize", response_model=list[SimpleToken])
    async def tokenize(request: Request, body: GenerateRequest) -> Response:
        """The tokens of a text, with the bytes that each covers."""

        async def tokenized(lease: RequestLease) -> list[SimpleToken]:
            return await prompt_tokens(await lease.model(), body.inputs)

        async with serving.lease(request) as lease:
            return json_reply(await while_connected(request, tokenized(lease)))


async def serve_compat(request: Request, serving: Serving, body: CompatRequest) -> Response:
    """POST /. Raises errors of the tree, and ClientGone."""
    if body.stream:
        return await _stream(request, serving, body, full_text=True)
    return await _whole(request, serving, body, full_text=True, as_list=True)


async def _whole(
    request: Request, serving: Serving, body: GenerateRequest, *, full_text: bool, as_list: bool
) -> Response:
    async with serving.lease(request) as lease:
        job = await lease.job(NativeRequest(body.inputs, body.parameters))
        answer = WholeAnswer(body.parameters, job.ending, prefix=_prefix(body, full_text), as_list=as_list)
        response = await answer_whole(request, lease.events([job]), answer)
        response.headers.update(answer_headers([job], [answer.timings], [answer.best_tokens]))
        return response


def _prefix(body: GenerateRequest, full_text: bool) -> str:
    wanted = body.parameters.return_full_text
    return body.inputs if (full_text if wanted is None else wanted) else ""


async def _stream(request: Request, serving: Serving, body: GenerateRequest, *, full_text: bool) -> Response:
    """Always 200: errors are events."""
    async with serving.lease(request) as lease:

        async def begin() -> tuple[Sequence[Job], Events, Chunks]:
            job = await lease.job(NativeRequest(body.inputs, body.parameters, stream=True))
            renderer = TokenStream(body.parameters, job.ending, prefix=_prefix(body, full_text))
            return [job], lease.stream(lease.events([job])), renderer.chunks

        return await serving.streamed(request, begin, stream_error_body, done=b"")
