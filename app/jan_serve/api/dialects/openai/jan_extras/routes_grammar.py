"""/extras/grammar: what a constraint becomes, or why it is refused, without generating."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.api.dialects.openai.jan_extras.wire import GrammarRequest, GrammarResponse
from jan_serve.api.dialects.openai.parse_constraint import constraint_of
from jan_serve.api.http.disconnect import while_connected
from jan_serve.api.http.replies import json_reply
from jan_serve.errors import InvalidRequest
from jan_serve.generation.prepare import RequestPreparer


def add_grammar_route(router: APIRouter, preparer: RequestPreparer) -> None:
    """Add it to the dialect's router."""

    @router.post("/extras/grammar", tags=["Extras"], summary="Grammar", response_model=GrammarResponse)
    async def grammar(request: Request, body: GrammarRequest) -> Response:
        """The GBNF that an answer under this constraint is held to. Needs no model."""
        constraint = constraint_of(body.response_format, body.grammar)
        if constraint is None:
            raise InvalidRequest("response_format or grammar is needed", param="response_format")
        compiled = await while_connected(request, preparer.compile(constraint))
        return json_reply({"grammar": compiled.gbnf})
