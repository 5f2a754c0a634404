"""The tokens of texts, and the grammars of constraints: Jan's /extras routes, and llama-server's for tokens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Annotated, NotRequired, TypeVar

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from jan_serve.core.constraint import JsonSchemaConstraint
from jan_serve.core.request import ChatPrompt
from jan_serve.dialects.openai.chat.parse import chat_request
from jan_serve.dialects.openai.chat.wire import ChatInputTokens, CreateChatCompletionRequest
from jan_serve.dialects.openai.dialect import OpenAIParts
from jan_serve.dialects.openai.outline import LLAMA_PATH
from jan_serve.dialects.openai.parse_constraint import constraint_of
from jan_serve.dialects.openai.wire_common import ConstraintFields
from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.wire_types import MAX_INT, AtMost, Ints, WireModel, wrong
from jan_serve.errors import InvalidRequest
from jan_serve.generation.service import LeasedModel
from jan_serve.http.disconnect import while_connected
from jan_serve.http.replies import json_reply

T = TypeVar("T")


class TokenizeInputRequest(WireModel):
    input: str
    model: str | None = None
    with_pieces: Annotated[bool, Field(description="Return the text of each token too.")] = False


class TokenizeInputResponse(TypedDict):
    """pieces: the text of each token, or its bytes if it is part of a character."""

    tokens: list[int]
    pieces: NotRequired[list[str | list[int]]]


class TokenizeInputCountResponse(TypedDict):
    count: int


class DetokenizeInputRequest(WireModel):
    tokens: Ints
    model: str | None = None


class DetokenizeInputResponse(TypedDict):
    text: str


class GrammarRequest(ConstraintFields):
    """A constraint, in any field of generation requests."""


class ExplanationResponse(TypedDict):
    """lines: what the schema costs, or why it is rejected and the smallest change with which it is not."""

    compiles: bool
    lines: list[str]


class GrammarResponse(TypedDict):
    """grammar: GBNF, with comments on what only the server can hold."""

    grammar: str


class TokenizedRequest(WireModel):
    """A text to cut into tokens. Defaults are llama-server's."""

    content: str
    add_special: Annotated[bool, Field(description="With BOS and EOS, if the model adds them.")] = False
    parse_special: Annotated[bool, Field(description="The text of a special token becomes it.")] = True
    with_pieces: Annotated[bool, Field(description="Return the text of each token too.")] = False
    model: str | None = None


class TokensRequest(WireModel):
    """Token ids to turn into text."""

    tokens: Annotated[Ints, AtMost(limits.MAX_PROMPT_TOKENS, "tokens")]
    model: str | None = None


class TokenPiece(TypedDict):
    """piece: the text, or its bytes if it is part of a character."""

    id: int
    piece: str | list[int]


class TokenList(TypedDict):
    tokens: list[int] | list[TokenPiece]


class TokensText(TypedDict):
    content: str


def _on_model(
    request: Request, parts: OpenAIParts, model: str | None, work: Callable[[LeasedModel], Awaitable[T]]
) -> Awaitable[T]:
    return while_connected(request, parts.service.with_model(model or None, work))


def _detokenize(tokens: Sequence[int], **options: bool) -> Callable[[LeasedModel], Awaitable[str]]:
    """Raises InvalidRequest for a number that no token has."""
    for token in tokens:
        if not 0 <= token <= MAX_INT:
            raise wrong("tokens", f"{str(token)[:20]} is not a token id")
    return partial(LeasedModel.detokenize, tokens=tokens, **options)


def _shown_piece(piece: bytes) -> str | list[int]:
    """A token's text in llama-server's form: its bytes if they are not valid UTF-8."""
    try:
        return piece.decode("utf-8")
    except UnicodeDecodeError:
        return list(piece)


def add_routes(router: APIRouter, parts: OpenAIParts) -> None:
    @router.post("/extras/tokenize", summary="Tokenize", response_model=TokenizeInputResponse)
    async def tokenize(request: Request, body: TokenizeInputRequest) -> Response:
        """Tokenize a text: parses special tokens, and adds BOS and EOS if the model does."""
        work = partial(LeasedModel.tokenize, text=body.input, with_pieces=body.with_pieces)
        found = await _on_model(request, parts, body.model, work)
        pieces = {"pieces": [*map(_shown_piece, found.pieces)]} if body.with_pieces else {}
        return json_reply({"tokens": found.tokens, **pieces})

    @router.post(
        "/extras/tokenize/count", summary="Tokenize Count", response_model=TokenizeInputCountResponse
    )
    async def count_query_tokens(request: Request, body: TokenizeInputRequest) -> Response:
        """Count the token ids that `/extras/tokenize` returns."""
        work = partial(LeasedModel.tokenize, text=body.input)
        found = await _on_model(request, parts, body.model, work)
        return json_reply({"count": len(found.tokens)})

    @router.post("/extras/detokenize", summary="Detokenize", response_model=DetokenizeInputResponse)
    async def detokenize(request: Request, body: DetokenizeInputRequest) -> Response:
        """Turn token ids into text, without special tokens."""
        text = await _on_model(request, parts, body.model, _detokenize(body.tokens))
        return json_reply({"text": text})

    preparer = parts.services.preparer

    @router.post("/extras/grammar", summary="Grammar", response_model=GrammarResponse)
    async def grammar(request: Request, body: GrammarRequest) -> Response:
        """Compile a constraint, and show what runs as GBNF. Needs no model."""
        constraint, field = constraint_of(body)
        if constraint is None:
            raise InvalidRequest("response_format or grammar is needed", param="response_format")
        return json_reply({"grammar": await while_connected(request, preparer.gbnf(constraint, field))})

    @router.post("/extras/grammar/explain", summary="Explain Grammar", response_model=ExplanationResponse)
    async def explain(request: Request, body: GrammarRequest) -> Response:
        """Say what a JSON Schema costs, or which keyword to change if it is rejected. Needs no model."""
        constraint, _ = constraint_of(body)
        if not isinstance(constraint, JsonSchemaConstraint):
            raise wrong("response_format", "a JSON Schema is needed")
        explanation = await while_connected(request, preparer.explain(constraint))
        return json_reply({"compiles": explanation.compiles, "lines": list(explanation.lines)})


def add_llama_routes(router: APIRouter, parts: OpenAIParts) -> None:
    @router.post("/v1/chat/completions/input_tokens", summary="Input tokens", response_model=ChatInputTokens)
    async def count_input_tokens(request: Request, body: CreateChatCompletionRequest) -> Response:
        """Count the tokens of a chat's prompt, including tools. Loads the model."""
        chat = chat_request(body)
        assert isinstance(chat.prompt, ChatPrompt)
        work = partial(LeasedModel.count, prompt=chat.prompt, requested=chat.model)
        tokens = await _on_model(request, parts, chat.model, work)
        return json_reply({"object": "response.input_tokens", "input_tokens": tokens})

    @router.post(LLAMA_PATH, summary="Tokenize", response_model=TokenList)
    async def tokenize(request: Request, body: TokenizedRequest) -> Response:
        """Cut a text into tokens. Also at `/tokenize`, for bodies with `content`."""
        work = partial(
            LeasedModel.tokenize,
            text=body.content,
            add_special=body.add_special,
            parse_special=body.parse_special,
            with_pieces=body.with_pieces,
        )
        found = await _on_model(request, parts, body.model, work)
        if not body.with_pieces:
            return json_reply({"tokens": found.tokens})
        pairs = zip(found.tokens, map(_shown_piece, found.pieces), strict=True)
        return json_reply({"tokens": [{"id": token, "piece": piece} for token, piece in pairs]})

    @router.post("/detokenize", summary="Detokenize", response_model=TokensText)
    async def detokenize(request: Request, body: TokensRequest) -> Response:
        """Turn token ids into text."""
        work = _detokenize(body.tokens, skip_special_tokens=False)
        return json_reply({"content": await _on_model(request, parts, body.model, work)})
