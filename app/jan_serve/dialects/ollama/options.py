"""`options` of requests, with Ollama's defaults: types and ranges are checked, unknown names are ignored. Pure.

Source: github.com/ollama/ollama, api/types.go (Options, Runner) and docs/modelfile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, cast

from jan_serve.core.sampling import SamplingParams, StopConditions
from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.stops import stop_texts
from jan_serve.dialects.shared.wire_types import MAX_INT, check_count
from jan_serve.errors import InvalidRequest

Kind = Literal["integer", "float32", "boolean", "array"]

_SAMPLING: Final = {
    "temperature": (0.0, limits.MAX_TEMPERATURE),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "typical_p": (0.0, 1.0),
    "repeat_penalty": (0.0, limits.MAX_PENALTY),
    "presence_penalty": (-limits.MAX_PENALTY, limits.MAX_PENALTY),
    "frequency_penalty": (-limits.MAX_PENALTY, limits.MAX_PENALTY),
}
"""Options that are fields of SamplingParams, with their ranges."""

_DEFAULTS: Final[dict[str, Any]] = {"temperature": 0.8, "top_k": 40, "top_p": 0.9}
"""Ollama's, where they are not those of SamplingParams."""

_KINDS: Final[dict[str, Kind]] = {
    **dict.fromkeys(_SAMPLING, "float32"),
    **dict.fromkeys(
        (
            "num_predict", "num_ctx", "num_keep", "seed", "top_k", "repeat_last_n", "num_batch", "num_gpu", "main_gpu",
            "num_thread", "draft_num_predict", "mirostat",
        ),
        "integer",
    ),
    **dict.fromkeys(("mirostat_tau", "mirostat_eta", "tfs_z"), "float32"),
    **dict.fromkeys(
        ("use_mmap", "use_mlock", "penalize_newline", "numa", "low_vram", "f16_kv", "vocab_only", "logits_all",
         "embedding_only"),
        "boolean",
    ),
    "stop": "array",
}  # fmt: skip
"""All options of Ollama. Those that no code below reads change how a model is loaded, or have no effect there."""

OFF_TYPICAL: Final = 1.0
_RANDOM_SEED: Final = -1


class Options(NamedTuple):
    """given: the fields that the request sets, by their names in SamplingParams and StopConditions.

    num_ctx: the context that the request expects, None if it says nothing.
    """

    sampling: SamplingParams
    stopping: StopConditions
    given: frozenset[str]
    num_ctx: int | None


def parse_options(options: Mapping[str, Any] | None) -> Options:
    """Raises InvalidRequest."""
    values = {
        name: _typed(name, value)
        for name, value in (options or {}).items()
        if name in _KINDS and value is not None
    }
    fields: dict[str, Any] = {name: _ranged(name, values[name]) for name in _SAMPLING if name in values}
    if fields.get("repeat_penalty") == 0:
        raise _wrong("repeat_penalty", "must be above 0; 1 is off")
    if fields.get("typical_p") == 0:
        fields["typical_p"] = OFF_TYPICAL
    if "top_k" in values:
        fields["top_k"] = min(max(values["top_k"], 0), MAX_INT)
    if "repeat_last_n" in values:
        fields["repeat_last_n"] = min(max(values["repeat_last_n"], -1), MAX_INT)
    if "seed" in values:
        fields["seed"] = _seed(values["seed"])
    stopping: dict[str, Any] = {}
    if "num_predict" in values:
        limit = values["num_predict"]
        stopping["max_tokens"] = min(limit, MAX_INT) if limit > 0 else None
    if "stop" in values:
        check_count(values["stop"], limits.MAX_STOPS, "stop")
        stopping["stop"] = stop_texts(values["stop"])
    return Options(
        SamplingParams(**(_DEFAULTS | fields)),
        StopConditions(**stopping),
        frozenset((*fields, *stopping)),
        values.get("num_ctx"),
    )


def _typed(name: str, value: Any) -> Any:
    kind = _KINDS[name]
    if kind == "boolean" and isinstance(value, bool):
        return value
    if kind == "array":
        items = [value] if isinstance(value, str) else value
        if isinstance(items, list) and all(isinstance(item, str) for item in cast(Sequence[Any], items)):
            return cast(list[str], items)
    if not isinstance(value, bool) and isinstance(value, int | float):
        if kind == "integer" and (isinstance(value, int) or value.is_integer()):
            return int(value)
        if kind == "float32":
            return float(min(max(value, -MAX_INT), MAX_INT))
    raise InvalidRequest(f'option "{name}" must be of type {kind}', param=name)


def _ranged(name: str, value: float) -> float:
    low, high = _SAMPLING[name]
    if not low <= value <= high:
        raise _wrong(name, f"must be from {low:g} to {high:g}")
    return value


def _seed(seed: int) -> int | None:
    """None draws one."""
    return None if seed == _RANDOM_SEED else seed % limits.SEEDS


def _wrong(name: str, words: str) -> InvalidRequest:
    return InvalidRequest(f'option "{name}" {words}', param=name)
