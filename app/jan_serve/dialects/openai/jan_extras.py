"""The /extras routes: tokenize, detokenize, and the grammar of a constraint."""

from __future__ import annotations

from functools import partial
from typing import Annotated, NotRequired

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from jan_serve.core.constraint import JsonSchemaConstraint
from jan_serve.dialects.dialect import Services
from jan_serve.dialects.openai.parse_constraint import constraint_of
from jan_serve.dialects.openai.render_common import shown_piece
from jan_serve.dialects.openai.wire_common import ConstraintFields
from jan_serve.dialects.shared.wire_types import MAX_INT, Ints, WireModel
from jan_serve.errors import InvalidRequest
from jan_serve.generation.leased_model import LeasedModel
from jan_serve.generation.prepare import RequestPreparer
from jan_serve.generation.service import GenerationService
from jan_serve.http.disconnect import while_connected
from jan_serve.http.replies import json_reply


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


def add_extra_routes(router: APIRouter, services: Services, service: GenerationService) -> None:
    _add_token_routes(router, service)
    _add_grammar_route(router, services.preparer)


def _add_token_routes(router: APIRouter, service: GenerationService) -> None:
    @router.post("/extras/tokenize", summary="Tokenize", response_model=TokenizeInputResponse)
    async def tokenize(request: Request, body: TokenizeInputRequest) -> Response:
        """Tokenize a text: parses special tokens, and adds BOS and EOS if the model does."""
        tokenized = partial(LeasedModel.tokenize, text=body.input, with_pieces=body.with_pieces)
        result = await while_connected(request, service.with_model(body.model or None, tokenized))
        answer: TokenizeInputResponse = {"tokens": result.tokens}
        if body.with_pieces:
            answer["pieces"] = [shown_piece(piece) for piece in result.pieces]
        return json_reply(answer)

    @router.post(
        "/extras/tokenize/count", summary="Tokenize Count", response_model=TokenizeInputCountResponse
    )
    async def count_query_tokens(request: Request, body: TokenizeInputRequest) -> Response:
        """Count the token ids that `/extras/tokenize` returns."""
        tokenized = partial(LeasedModel.tokenize, text=body.input)
        result = await while_connected(request, service.with_model(body.model or None, tokenized))
        return json_reply({"count": len(result.tokens)})

    @router.post("/extras/detokenize", summary="Detokenize", response_model=DetokenizeInputResponse)
    async def detokenize(request: Request, body: DetokenizeInputRequest) -> Response:
        """Turn token ids into text, without special tokens."""
        for token in body.tokens:
            if not 0 <= token <= MAX_INT:
                raise InvalidRequest(f"tokens: {str(token)[:20]} is not a token id", param="tokens")
        detokenized = partial(LeasedModel.detokenize, tokens=body.tokens)
        text = await while_connected(request, service.with_model(body.model or None, detokenized))
        return json_reply({"text": text})


def _add_grammar_route(router: APIRouter, preparer: RequestPreparer) -> None:
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
            raise InvalidRequest("response_format: a JSON Schema is needed", param="response_format")
        explanation = await while_connected(request, preparer.explain(constraint))
        return json_reply({"compiles": explanation.compiles, "lines": list(explanation.lines)})
