"""Why a request took its time, in words, with what can be done. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from jan_serve.api.activity.recent import Activity
from jan_serve.core.trace import Difference
from jan_serve.resources import explanations

_LEAST_S: Final = 0.02
"""Shorter times are not worth a word."""
_LONG_PROMPT: Final = 512
"""Tokens of another prompt from which on its reading is felt."""
_LOST: Final = 0.5
"""Share of an earlier prompt: if the cache had less of it, it was evicted."""


class Cause(NamedTuple):
    """code: as in explanations.toml. seconds: the time that it explains. advice: empty if there is nothing to do."""

    code: str
    seconds: float
    text: str
    advice: str


def causes(activity: Activity, others: Iterable[Activity]) -> list[Cause]:
    """The longest first. others: all of the server, the latest first."""
    found = _all(activity, [each for each in others if each is not activity])
    return sorted(found, key=lambda cause: -cause.seconds)


def _all(activity: Activity, others: Sequence[Activity]) -> Iterator[Cause]:
    record = activity.record
    phases = record.trace.phases
    rivals = [each for each in others if each.record.model == record.model]
    yield from _cause(*_load(activity, others), seconds=phases.get("load", 0.0))
    for phase in ("template", "compile", "media", "growth", "restart"):
        yield from _cause(phase, record.model or "the model", seconds=phases.get(phase, 0.0))
    # The wait for the next worker is part of the engine's time: of the answer's, or of the time before it.
    restart = phases.get("restart", 0.0)
    writing = restart if activity.span("restart")[0] >= activity.span("writing")[0] else 0.0
    queue = (record.queue_s or 0.0) - (restart - writing)
    began, ended = activity.span("queue")
    count = sum(each.began < ended and each.ended > began for each in rivals)
    if count:
        yield from _cause("queue", seconds=queue, count=count)
    if record.decode_s is not None:
        engine = (record.queue_s or 0.0) + (record.prefill_s or 0.0) + record.decode_s
        idle = activity.ended - activity.began - engine - record.trace.before_s
        yield from _cause("server", seconds=idle if count else idle + queue)
    yield from _reading(activity)
    neighbours = [*_neighbour(activity, rivals)]
    felt = sum(each.seconds for each in neighbours) + writing
    yield from neighbours
    decode = record.decode_s or 0.0
    rate = record.completion_tokens / decode if decode else 0.0
    yield from _cause("writing", seconds=decode - felt, count=record.completion_tokens, rate=rate)


def _cause(code: str, *names: str, seconds: float, **values: object) -> Iterator[Cause]:
    """Nothing if it took no time. names: the model, and another one."""
    if seconds >= _LEAST_S:
        words = explanations()["causes"][code]
        values.update(zip(("model", "other"), names, strict=False))
        yield Cause(code, seconds, words.meaning.format_map(values), words.advice.format_map(values))


def _load(activity: Activity, others: Sequence[Activity]) -> tuple[str, ...]:
    """The code, and names for its words."""
    name = activity.record.model or "the model"
    loads, _ = activity.span("load")
    # Those that waited for the same load had the model no earlier.
    before = [
        each
        for each in others
        if each.record.model
        and each.began < activity.began
        and (each.record.model != name or each.has_model_since <= loads)
    ]
    asked = [each.record.model for each in before]
    if name not in asked:
        return "cold_load", name
    between = before[: asked.index(name)]
    if not between:
        return "reload", name
    known = between[0].owner == activity.owner
    return "swapped", name, (between[0].record.model or "") if known else "another model"


def _neighbour(activity: Activity, rivals: Iterable[Activity]) -> Iterator[Cause]:
    """The longest reading of another long prompt during this one's reading and writing."""
    begins, _ = activity.span("reading")
    longest, tokens = 0.0, ""
    for other in rivals:
        if other.read_tokens < max(_LONG_PROMPT, activity.read_tokens):
            continue
        start, end = other.span("reading")
        seconds = min(end, activity.ended) - max(start, begins)
        if seconds > longest:
            # How much another key sends is not for this one.
            longest = seconds
            tokens = str(other.read_tokens) if other.owner == activity.owner else f"over {_LONG_PROMPT}"
    yield from _cause("long_neighbour", seconds=longest, tokens=tokens)


def _reading(activity: Activity) -> Iterator[Cause]:
    """The tokens that were read, and why they were not in the cache."""
    record, seconds = activity.record, activity.record.prefill_s or 0.0
    tokens, nearest, difference = activity.read_tokens, record.trace.nearest, record.trace.difference
    rate = tokens / seconds if seconds else 0.0
    read = f"{tokens} of {record.prompt_tokens} tokens of the prompt were read, {rate:.0f} a second"
    if nearest is None:
        yield from _cause("new_prompt", seconds=seconds, read=read)
    elif difference is not None:
        code, place = _changed(difference)
        yield from _cause(
            code,
            seconds=seconds,
            read=f"{read}, from token {record.cached_tokens + 1} on",
            place=place,
            number=difference.place,
            count=difference.count,
        )
    elif record.cached_tokens < nearest.tokens * _LOST:
        yield from _cause("evicted", seconds=seconds, read=read, tokens=nearest.tokens)
    else:
        yield from _cause("new_text", seconds=seconds, read=read)


def _changed(difference: Difference) -> tuple[str, str]:
    """The code, and the place in words."""
    match difference.change:
        case "system" | "text":
            of = "system text" if difference.change == "system" else "prompt"
            return difference.sign or "system_changed", f"line {difference.place} of the {of}"
        case change:
            place = f"message {difference.place} after the system text ({difference.role})"
            return difference.sign or change, place
