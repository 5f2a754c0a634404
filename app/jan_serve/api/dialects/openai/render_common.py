"""What every reply of Jan's API begins with, and the words it uses. Pure."""

from __future__ import annotations

from jan_serve.api.dialects.openai.chat.wire import Timings
from jan_serve.api.dialects.openai.chat.wire import Usage as WireUsage
from jan_serve.core.events import Completed, Usage


class ReplyHead:
    """Id, time and model name. The name is the one that the client sent; without one, the model that serves."""

    def __init__(self, reply_id: str, created: int, asked_for: str | None) -> None:
        """created: seconds of the Unix epoch."""
        self.id = reply_id
        self.created = created
        self.model = asked_for or ""
        self._echo = bool(asked_for)

    def served_by(self, name: str) -> None:
        """The model that serves the request."""
        if not self._echo:
            self.model = name


def usage_of(usage: Usage) -> WireUsage:
    """The counts."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def timings_of(completed: Completed) -> Timings:
    """The times as llama-server gives them; rates are 0 where nothing was computed."""
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


def _ratio(amount: float, by: float) -> float:
    return amount / by if by else 0.0
