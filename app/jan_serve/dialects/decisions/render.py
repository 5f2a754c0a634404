"""Decisions as the answers of both forms. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Final

import msgspec

from jan_serve.core.calibration import Calibration
from jan_serve.dialects.decisions.parse import AskedQuestion
from jan_serve.dialects.decisions.wire import (
    AppliedCalibration,
    DecideAnswer,
    DecideRequest,
    OptionShare,
    SystemOneRequest,
)
from jan_serve.generation.scoring.decisions import Decided, Decision

_HALF: Final = 0.5


def decide_reply(
    body: DecideRequest,
    asked: Mapping[str, AskedQuestion],
    decided: Decided,
    calibration: Calibration | None,
) -> dict[str, object]:
    """calibration: None unless the request asks for it."""
    temperature = body.temperature if calibration is None else calibration.temperature
    decisions = iter(decided.decisions)
    answers: dict[str, DecideAnswer] = {}
    for name, (questions, values) in asked.items():
        answer = _several_answer if body.questions[name].type == "several" else _decide_answer
        own = list(islice(decisions, len(questions)))
        answers[name] = answer(values, own, temperature, body.questions[name].threshold)
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
    values: Sequence[Any], decisions: Sequence[Decision], temperature: float, threshold: float | None
) -> DecideAnswer:
    [decision] = decisions
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
            _option_share(value, share, mass, count)
            for value, share, mass, count in zip(
                values, shares, decision.log_masses, decision.tokenisations, strict=True
            )
        ],
    }


def _several_answer(
    values: Sequence[Any], decisions: Sequence[Decision], temperature: float, threshold: float | None
) -> DecideAnswer:
    """The decisions are yes or no, one for each value."""
    least = _HALF if threshold is None else threshold
    shares = [decision.shares(temperature)[0] for decision in decisions]
    return {
        "answer": [value for value, share in zip(values, shares, strict=True) if share >= least],
        "abstained": False,
        "probability": min(share if share >= least else 1.0 - share for share in shares),
        "mass": min(decision.mass for decision in decisions),
        "tokenisations": "all" if all(decision.is_exact for decision in decisions) else "canonical",
        "options": [
            _option_share(value, share, decision.log_masses[0], decision.tokenisations[0])
            for value, share, decision in zip(values, shares, decisions, strict=True)
        ],
    }


def _option_share(value: Any, share: float, log_mass: float, tokenisations: int) -> OptionShare:
    return {
        "option": value,
        "probability": share,
        "logprob": log_mass if math.isfinite(log_mass) else None,
        "tokenisations": tokenisations,
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
