"""The routes of typed decisions."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.api.dialect import Services
from jan_serve.api.dialects.decisions.parse import decide_questions, system_one_questions
from jan_serve.api.dialects.decisions.render import decide_reply, system_one_reply
from jan_serve.api.dialects.decisions.wire import DecideReply, DecideRequest, SystemOneReply, SystemOneRequest
from jan_serve.api.http.disconnect import while_connected
from jan_serve.api.http.json_body import JsonRoute
from jan_serve.api.http.replies import json_reply
from jan_serve.api.http.request_record import record_of
from jan_serve.api.shared.default_errors import ERROR_RESPONSES
from jan_serve.generation.scoring.decisions import Decided, DecisionService, rendered


def decisions_router(services: Services) -> APIRouter:
    router = APIRouter(route_class=JsonRoute, tags=["Decisions"], responses=ERROR_RESPONSES)
    service = DecisionService(services.models, services.preparer, services.running)

    def record(request: Request, decided: Decided) -> None:
        found = record_of(request.scope)
        found.model, found.prompt_tokens = decided.model, decided.prompt_tokens

    @router.post("/v1/decide", summary="Decide", response_model=DecideReply)
    async def decide(request: Request, body: DecideRequest) -> Response:
        """Answer questions about a text with the probability of each option. Nothing is generated."""
        asked = decide_questions(body)
        work = service.decide(
            body.model,
            rendered(body.state),
            [one.question for one in asked.values()],
            instructions=body.instructions,
            canonical=body.tokenisations == "canonical",
        )
        decided = await while_connected(request, work)
        record(request, decided)
        return json_reply(decide_reply(body, asked, decided))

    @router.post("/v1/systemone", summary="Decide (System One)", response_model=SystemOneReply)
    async def system_one(request: Request, body: SystemOneRequest) -> Response:
        """Answer typed questions about a state, in the form of System One models, with any model that writes."""
        asked = system_one_questions(body)
        questions = [one.question for one in asked.values()]
        decided = await while_connected(request, service.decide(body.model, rendered(body.state), questions))
        record(request, decided)
        return json_reply(system_one_reply(body, asked, decided))

    return router
