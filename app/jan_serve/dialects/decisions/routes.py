"""The routes of typed decisions, whose answers are rendered in both forms."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.core.measurements import Calibration
from jan_serve.dialects.decisions import questions as wire
from jan_serve.dialects.dialect import Services
from jan_serve.dialects.model_store import ModelStore
from jan_serve.dialects.shared.answers import count_tokens, on_model
from jan_serve.dialects.shared.documented_errors import DEFAULT_ERRORS, ErrorBody, documented_errors
from jan_serve.dialects.shared.wire_types import wrong
from jan_serve.errors import UnsupportedOperation
from jan_serve.generation import decisions
from jan_serve.generation.decisions import Decided, calibrate, check_enough, rendered
from jan_serve.generation.service import GenerationService
from jan_serve.http.disconnect import while_connected
from jan_serve.http.json_body import JsonRoute
from jan_serve.http.replies import json_reply
from jan_serve.ipc.scoring import OptionWeights

_HALF: Final = 0.5


def decide_reply(
    body: wire.DecideRequest,
    asked: Mapping[str, wire.AskedQuestion],
    decided: Decided,
    calibration: Calibration | None,
) -> dict[str, object]:
    """calibration: None unless the request asks for it."""
    temperature = body.temperature if calibration is None else calibration.temperature
    decisions = iter(decided.decisions)
    usage = {
        "prompt_tokens": decided.prompt_tokens,
        "total_tokens": decided.prompt_tokens,
        "cached_tokens": decided.cached_tokens,
    }
    return {
        "model": body.model or decided.model,
        "answers": {
            name: _answer(body.questions[name], values, [*islice(decisions, len(questions))], temperature)
            for name, (questions, values) in asked.items()
        },
        "calibration": None if calibration is None else _applied(calibration),
        "usage": usage,
    }


def _applied(calibration: Calibration) -> wire.AppliedCalibration:
    return {"temperature": calibration.temperature, "examples": calibration.examples}


def _answer(
    question: wire.DecideQuestion,
    values: Sequence[Any],
    decisions: Sequence[OptionWeights],
    temperature: float,
) -> wire.DecideAnswer:
    """decisions: of `several` yes or no, one for each value; else the only one."""
    threshold, abstains = question.threshold, False
    if question.type == "several":
        least = _HALF if threshold is None else threshold
        shares = [decision.shares(temperature)[0] for decision in decisions]
        answer: Any = [value for value, share in zip(values, shares, strict=True) if share >= least]
        probability = min(share if share >= least else 1.0 - share for share in shares)
        facts = [(decision.log_masses[0], decision.tokenisations[0]) for decision in decisions]
    else:
        [decision] = decisions
        shares = [*decision.shares(temperature)]
        probability = max(shares)
        abstains = threshold is not None and probability < threshold
        answer = None if abstains else values[_best(shares)]
        facts = [*zip(decision.log_masses, decision.tokenisations, strict=True)]
    options: list[wire.OptionShare] = [
        {
            "option": value,
            "probability": share,
            "logprob": log_mass if math.isfinite(log_mass) else None,
            "tokenisations": count,
        }
        for value, share, (log_mass, count) in zip(values, shares, facts, strict=True)
    ]
    return {
        "answer": answer,
        "abstained": abstains,
        "probability": probability,
        "mass": min(decision.mass for decision in decisions),
        "tokenisations": "all" if all(decision.is_exact for decision in decisions) else "canonical",
        "options": options,
    }


def system_one_reply(
    body: wire.SystemOneRequest,
    asked: Mapping[str, wire.AskedQuestion],
    decided: Decided,
    calibration: Calibration | None,
) -> dict[str, object]:
    """The reply of `decide_reply`, in System One's form."""
    temperature = 1.0 if calibration is None else calibration.temperature
    answers: dict[str, dict[str, object]] = {}
    for (name, question), decision in zip(asked.items(), decided.decisions, strict=True):
        shares = decision.shares(temperature)
        named = {str(value): share for value, share in zip(question.values, shares, strict=True)}
        match body.questions[name].type:
            case "noul":
                answers[name] = {"type": "noul", "noul": shares[0]}
            case "choice":
                answers[name] = {
                    "type": "choice",
                    "choice": question.values[_best(shares)],
                    "probabilities": named,
                    "confidence": choice_confidence(shares),
                }
            case "score":
                levels = body.questions[name].criteria
                answers[name] = {
                    "type": "score",
                    "score": math.fsum(level * share for level, share in enumerate(shares)),
                    "legend": {str(level): what for level, what in enumerate(levels or ())},
                    "probabilities": named,
                    "confidence": score_confidence(shares),
                }
    usage = {"input_tokens": decided.prompt_tokens, "output_tokens": 0}
    applied = {} if calibration is None else {"calibration": _applied(calibration)}
    return {"model": body.model or decided.model, "answers": answers, **applied, "usage": usage}


def choice_confidence(shares: Sequence[float]) -> float:
    """1 for one certain option, 0 if all are as probable."""
    count = len(shares)
    return 1.0 if count < 2 else min(1.0, max(0.0, (count * max(shares) - 1.0) / (count - 1.0)))


def score_confidence(shares: Sequence[float]) -> float:
    """1 for one certain level, 0 if they are as far from the most probable one as if all were as probable."""
    count = len(shares)
    if count < 2:
        return 1.0
    mode, centre = _best(shares), (count - 1) / 2
    distance = math.fsum(share * abs(level - mode) for level, share in enumerate(shares))
    return max(0.0, 1.0 - distance / (math.fsum(abs(level - centre) for level in range(count)) / count))


def _best(shares: Sequence[float]) -> int:
    return max(range(len(shares)), key=lambda index: shares[index])


_WRITES: Final = documented_errors(ErrorBody, (500, 507))


def decisions_router(services: Services) -> APIRouter:
    router = APIRouter(route_class=JsonRoute, tags=["Decisions"], responses=DEFAULT_ERRORS)
    service = GenerationService(services.models, services.preparer, services.running)
    _decide_routes(router, service, services.store)
    _calibration_routes(router, service, services.store)
    return router


def _decide_routes(router: APIRouter, service: GenerationService, store: ModelStore | None) -> None:
    async def decided(
        request: Request,
        body: wire.DecideRequest | wire.SystemOneRequest,
        asked: Mapping[str, wire.AskedQuestion],
        **options: Any,
    ) -> tuple[Decided, Calibration | None]:
        """With the model's calibration, if the request asks for it."""
        questions = [question for one in asked.values() for question in one.questions]
        work = partial(decisions.decide, state=rendered(body.state), questions=questions, **options)
        found = await on_model(request, service, body.model, work)
        return found, await _calibration_of(store, found) if body.calibrated else None

    @router.post("/v1/decide", summary="Decide", response_model=wire.DecideReply)
    async def decide(request: Request, body: wire.DecideRequest) -> Response:
        """Answer questions about a text with the probability of each option. Nothing is generated."""
        asked = wire.decide_questions(body)
        if body.calibrated and body.temperature != 1.0:
            raise wrong("temperature", "a calibrated request has the calibration's")
        found = await decided(request, body, asked, **_reading(body))
        return json_reply(decide_reply(body, asked, *found))

    @router.post("/v1/systemone", summary="Decide (System One)", response_model=wire.SystemOneReply)
    async def system_one(request: Request, body: wire.SystemOneRequest) -> Response:
        """Answer typed questions about a state, in the form of System One models, with any model that writes."""
        asked = wire.system_one_questions(body)
        return json_reply(system_one_reply(body, asked, *await decided(request, body, asked)))


def _reading(body: wire.DecideRequest | wire.CalibrateRequest) -> dict[str, Any]:
    """How the questions are put and the options are read."""
    return {"instructions": body.instructions, "canonical": body.tokenisations == "canonical"}


def _calibration_routes(router: APIRouter, service: GenerationService, store: ModelStore | None) -> None:
    path = "/v1/decide/calibration"

    def reply(model: str, calibration: Calibration | None) -> Response:
        return json_reply({"model": model, "calibration": calibration})

    @router.post(path, summary="Calibrate a model", response_model=wire.CalibrationReply, responses=_WRITES)
    async def fit(request: Request, body: wire.CalibrateRequest) -> Response:
        """Fit a temperature on questions with known answers, and keep it with the model."""
        examples = [
            wire.labelled_question(f"examples.{n}", example) for n, example in enumerate(body.examples)
        ]
        check_enough(len(examples))
        kept = _kept(store)
        work = calibrate(service, body.model, examples, **_reading(body))
        fitted = await while_connected(request, work)
        count_tokens(request, fitted.decided)
        _check_whole(fitted.decided)
        name = await kept.keep_calibration(fitted.decided.model, fitted.calibration)
        return reply(name, fitted.calibration)

    @router.get(path, summary="The calibration of a model", response_model=wire.CalibrationReply)
    async def show(model: str | None = None) -> Response:
        """Null if the model has none, or if its file has changed since."""
        return reply(*await _kept(store).calibration(model))

    @router.delete(
        path, summary="Forget a calibration", response_model=wire.CalibrationReply, responses=_WRITES
    )
    async def forget(model: str | None = None) -> Response:
        return reply(await _kept(store).keep_calibration(model, None), None)


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
        raise wrong(
            "calibrated", f"`{decided.model}` has no calibration; POST /v1/decide/calibration makes one."
        )
    return calibration
