"""What several replies share: head, token counts, timings, log-probabilities, progress, pages of lists. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from typing_extensions import TypedDict

from jan_serve import __version__
from jan_serve.core import events as core
from jan_serve.dialects.openai.chat import wire
from jan_serve.dialects.openai.wire_common import ReportFields
from jan_serve.dialects.shared.wire_types import wrong

FINGERPRINT: Final = f"jan-serve {__version__}"
"""What wrote an answer, besides its model: OpenAI's `system_fingerprint`."""


class ReplyFacts:
    """Id, time and model name: the name that the client sent, else the name of the model that serves the request."""

    def __init__(self, reply_id: str, created: int, requested_model: str | None) -> None:
        """created: seconds of the Unix epoch."""
        self.id = reply_id
        self.created = created
        self.model = requested_model or ""
        self._echo = bool(requested_model)

    def served_by(self, name: str) -> None:
        if not self._echo:
            self.model = name


def usage_of(usage: core.Usage) -> wire.Usage:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


class Reports:
    """Adds to the chunks of a stream what its request wants to know of its progress, in llama-server's form."""

    def __init__(self, wanted: ReportFields, n: int = 1) -> None:
        """n: choices of each prompt."""
        self._wanted = wanted
        self._n = n
        self._latest: dict[int, core.Progress] = {}

    def added(
        self, event: core.GenerationEvent, chunks: Iterable[Any], empty: Callable[[int], Any]
    ) -> Iterator[Any]:
        """The chunks of an event, the last one with `timings`; for a Progress an empty one of its prompt."""
        match event:
            case core.Progress() as progress:
                self._latest[progress.prompt] = progress
                if self._wanted.return_progress and progress.read_tokens is not None:
                    yield {
                        **empty(progress.prompt),
                        "prompt_progress": _prompt_progress(progress, progress.read_tokens),
                    }
            case core.TextDelta() | core.ReasoningDelta() | core.ToolCallDelta() | core.Finished():
                rendered = list(chunks)
                latest = self._latest.get(event.index // self._n)
                if rendered and latest is not None and self._wanted.timings_per_token:
                    rendered[-1]["timings"] = timings_of(latest)
                yield from rendered
            case _:
                yield from chunks


def _prompt_progress(progress: core.Progress, read_tokens: int) -> wire.PromptProgress:
    return {
        "total": progress.usage.prompt_tokens,
        "cache": progress.usage.cached_tokens,
        "processed": read_tokens,
        "time_ms": round(progress.timings.prefill_s * 1000),
    }


def timings_of(completed: core.Completed | core.Progress) -> wire.Timings:
    """Timings in llama-server's form; rates are 0 where nothing was computed."""
    usage, timings = completed.usage, completed.timings
    computed = max(0, usage.prompt_tokens - usage.cached_tokens)
    generated = usage.completion_tokens
    return {
        "cache_n": usage.cached_tokens,
        "prompt_n": computed,
        "prompt_ms": timings.prefill_s * 1000,
        "prompt_per_token_ms": _ratio(timings.prefill_s * 1000, computed),
        "prompt_per_second": _ratio(computed, timings.prefill_s),
        "predicted_n": generated,
        "predicted_ms": timings.decode_s * 1000,
        "predicted_per_token_ms": _ratio(timings.decode_s * 1000, generated),
        "predicted_per_second": _ratio(generated, timings.decode_s),
    }


def _ratio(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator else 0.0


def chat_logprobs(tokens: Iterable[core.TokenInfo]) -> wire.ChatLogprobs:
    """One entry per token. The chosen token is added to its candidates if there are any and it is not among them."""
    return {"content": [_chat_token(token) for token in tokens if token.logprob is not None], "refusal": None}


def _chat_token(token: core.TokenInfo) -> wire.TokenLogprob:
    logprob = token.logprob or 0.0
    top = [_candidate(entry.piece, entry.logprob) for entry in token.top]
    if token.top and all(entry.id != token.id for entry in token.top):
        top.append(_candidate(token.piece, logprob))
    own = _candidate(token.piece, logprob)
    return {"token": own["token"], "logprob": logprob, "bytes": own["bytes"], "top_logprobs": top}


def _candidate(piece: bytes, logprob: float) -> wire.TopLogprob:
    return {"token": piece.decode("utf-8", "replace"), "logprob": logprob, "bytes": list(piece)}


class Page(TypedDict):
    object: Literal["list"]
    data: list[dict[str, Any]]
    first_id: str | None
    last_id: str | None
    has_more: bool


def page(rows: Sequence[Mapping[str, Any]], after: str | None, limit: int) -> Page:
    """The first rows behind one. Raises InvalidRequest for an `after` that is none of them."""
    ids = [row["id"] for row in rows]
    if after is not None and after not in ids:
        raise wrong("after", f"there is no item {after[:100]!r}")
    start = 0 if after is None else ids.index(after) + 1
    return listed(rows[start : start + limit], start + limit < len(rows))


def listed(shown: Sequence[Mapping[str, Any]], has_more: bool) -> Page:
    return {
        "object": "list",
        "data": [dict(row) for row in shown],
        "first_id": shown[0]["id"] if shown else None,
        "last_id": shown[-1]["id"] if shown else None,
        "has_more": has_more,
    }
