"""Parts that replies of several endpoints share: id, time and model, token counts, timings. Pure."""

from __future__ import annotations

from jan_serve.core.events import Completed, Usage
from jan_serve.dialects.openai.chat.wire import Timings
from jan_serve.dialects.openai.chat.wire import Usage as WireUsage


class ReplyHead:
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


def usage_of(usage: Usage) -> WireUsage:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def timings_of(completed: Completed) -> Timings:
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
