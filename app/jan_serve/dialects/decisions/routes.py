"""The routes of typed decisions."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.core.calibration import Calibration
from jan_serve.dialects.decisions.parse import (
    decide_questions,
    labelled_questions,
    system_one_questions,
)
from jan_serve.dialects.decisions.render import calibration_reply, decide_reply, system_one_reply
from jan_serve.dialects.decisions.wire import (
    CalibrateRequest,
    CalibrationReply,
    DecideReply,
    DecideRequest,
    SystemOneReply,
    SystemOneRequest,
)
from jan_serve.dialects.dialect import Services
from jan_serve.dialects.model_store import ModelStore
from jan_serve.dialects.shared.default_errors import ERROR_BODY, ERROR_RESPONSES
from jan_serve.errors import InvalidRequest, UnsupportedOperation
from jan_serve.generation.scoring import decisions
from jan_serve.generation.scoring.calibration import calibrate, check_enough
from jan_serve.generation.scoring.decisions import Decided, rendered
from jan_serve.generation.service import GenerationService
from jan_serve.http.disconnect import while_connected
from jan_serve.http.json_body import JsonRoute
from jan_serve.http.replies import json_reply
from jan_serve.http.request_record import record_of

_WRITES: Final[dict[int | str, dict[str, Any]]] = {
    500: {**ERROR_BODY, "description": "The models folder cannot be written"},
    507: {**ERROR_BODY, "description": "The disk has no room"},
}


def decisions_router(services: Services) -> APIRouter:
    router = APIRouter(route_class=JsonRoute, tags=["Decisions"], responses=ERROR_RESPONSES)
    service = GenerationService(services.models, services.preparer, services.running)
    _decide_routes(router, service, services.store)
    _calibration_routes(router, service, services.store)
    return router


def _decide_routes(router: APIRouter, service: GenerationService, store: ModelStore | None) -> None:
    @router.post("/v1/decide", summary="Decide", response_model=DecideReply)
    async def decide(request: Request, body: DecideRequest) -> Response:
        """Answer questions about a text with the probability of each option. Nothing is generated."""
        asked = decide_questions(body)
        if body.calibrated and body.temperature != 1.0:
            raise InvalidRequest(
                "temperature: a calibrated request has the calibration's", param="temperature"
            )
        work = partial(
            decisions.decide,
            state=rendered(body.state),
            questions=[question for one in asked.values() for question in one.questions],
            instructions=body.instructions,
            canonical=body.tokenisations == "canonical",
        )
        decided = await while_connected(request, service.with_model(body.model, work))
        _record(request, decided)
        calibration = await _calibration_of(store, decided) if body.calibrated else None
        return json_reply(decide_reply(body, asked, decided, calibration))

    @router.post(
        "/v1/systemone",
        summary="Decide (System One)",
        response_model=SystemOneReply,
    )
    async def system_one(request: Request, body: SystemOneRequest) -> Response:
        """Answer typed questions about a state, in the form of System One models, with any model that writes."""
        asked = system_one_questions(body)
        questions = [question for one in asked.values() for question in one.questions]
        work = partial(decisions.decide, state=rendered(body.state), questions=questions)
        decided = await while_connected(request, service.with_model(body.model, work))
        _record(request, decided)
        calibration = await _calibration_of(store, decided) if body.calibrated else None
        return json_reply(system_one_reply(body, asked, decided, calibration))


def _calibration_routes(router: APIRouter, service: GenerationService, store: ModelStore | None) -> None:
    path = "/v1/decide/calibration"

    @router.post(path, summary="Calibrate a model", response_model=CalibrationReply, responses=_WRITES)
    async def fit(request: Request, body: CalibrateRequest) -> Response:
        """Fit a temperature on questions with known answers, and keep it with the model."""
        examples = labelled_questions(body)
        check_enough(len(examples))
        kept = _kept(store)
        work = calibrate(
            service,
            body.model,
            examples,
            instructions=body.instructions,
            canonical=body.tokenisations == "canonical",
        )
        fitted = await while_connected(request, work)
        _record(request, fitted.decided)
        _check_whole(fitted.decided)
        name = await kept.keep_calibration(fitted.decided.model, fitted.calibration)
        return json_reply(calibration_reply(name, fitted.calibration))

    @router.get(path, summary="The calibration of a model", response_model=CalibrationReply)
    async def show(model: str | None = None) -> Response:
        """Null if the model has none, or if its file has changed since."""
        return json_reply(calibration_reply(*await _kept(store).calibration(model)))

    @router.delete(path, summary="Forget a calibration", response_model=CalibrationReply, responses=_WRITES)
    async def forget(model: str | None = None) -> Response:
        return json_reply(calibration_reply(await _kept(store).keep_calibration(model, None), None))


def _record(request: Request, decided: Decided) -> None:
    found = record_of(request.scope)
    found.model, found.prompt_tokens = decided.model, decided.prompt_tokens


def _kept(store: ModelStore | None) -> ModelStore:
    if store is None:
        raise UnsupportedOperation("This server keeps no calibrations.")
    return store


def _check_whole(decided: Decided) -> None:
    if decided.adapter is not None:
        raise UnsupportedOperation(
            f"A calibration is of a whole model, not of one with the adapter `{decided.adapter}`.",
            param="model",
        )


async def _calibration_of(store: ModelStore | None, decided: Decided) -> Calibration:
    _check_whole(decided)
    _, calibration = await _kept(store).calibration(decided.model)
    if calibration is None:
        raise InvalidRequest(
            f"calibrated: `{decided.model}` has no calibration; POST /v1/decide/calibration makes one.",
            param="calibrated",
        )
    return calibration
