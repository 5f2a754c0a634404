"""Decisions as the answers of both forms. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from jan_serve.api.dialects.decisions.parse import AskedQuestion
from jan_serve.api.dialects.decisions.wire import (
    AppliedCalibration,
    DecideAnswer,
    DecideRequest,
    SystemOneRequest,
)
from jan_serve.core.calibration import Calibration
from jan_serve.generation.scoring.decisions import Decided, Decision


def decide_reply(
    body: DecideRequest,
    asked: Mapping[str, AskedQuestion],
    decided: Decided,
    calibration: Calibration | None,
) -> dict[str, object]:
    """calibration: None unless the request asks for it."""
    temperature = body.temperature if calibration is None else calibration.temperature
    answers = {
        name: _decide_answer(question.values, decision, temperature, body.questions[name].threshold)
        for (name, question), decision in zip(asked.items(), decided.decisions, strict=True)
    }
    usage = {
        "prompt_tokens": decided.prompt_tokens,
        "total_tokens": decided.prompt_tokens,
        "cached_tokens": decided.cached_tokens,
    }
    return {
        "model": body.model or decided.model,
        "answers": answers,
        "calibration": None if calibration is None else _applied(calibration),
        "usage": usage,
    }


def _applied(calibration: Calibration) -> AppliedCalibration:
    return {"temperature": calibration.temperature, "examples": calibration.examples}


def calibration_reply(model: str, calibration: Calibration | None) -> dict[str, object]:
    return {
        "model": model,
        "calibration": None if calibration is None else msgspec.structs.asdict(calibration),
    }


def _decide_answer(
    values: Sequence[Any], decision: Decision, temperature: float, threshold: float | None
) -> DecideAnswer:
    shares = decision.shares(temperature)
    best = _best(shares)
    abstains = threshold is not None and shares[best] < threshold
    return {
        "answer": None if abstains else values[best],
        "abstained": abstains,
        "probability": shares[best],
        "mass": decision.mass,
        "tokenisations": "all" if decision.is_exact else "canonical",
        "options": [
            {
                "option": value,
                "probability": share,
                "logprob": mass if math.isfinite(mass) else None,
                "tokenisations": count,
            }
            for value, share, mass, count in zip(
                values, shares, decision.log_masses, decision.tokenisations, strict=True
            )
        ],
    }


def system_one_reply(
    body: SystemOneRequest,
    asked: Mapping[str, AskedQuestion],
    decided: Decided,
    calibration: Calibration | None,
) -> dict[str, object]:
    """As `decide_reply`."""
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
