"""Limits on requests beyond the ranges of Ollama's API. Checked before any work is done."""

from __future__ import annotations

from typing import Final

MAX_MESSAGES: Final = 10_000
MAX_TOOLS: Final = 512
MAX_TOOL_CALLS: Final = 1_000
MAX_STOPS: Final = 64
MAX_OPTIONS: Final = 256
MAX_TOP_LOGPROBS: Final = 20
MAX_FILES: Final = 64
MAX_EMBEDDING_INPUTS: Final = 2_048
MAX_CONTEXT_TOKENS: Final = 1 << 22
MAX_TEMPERATURE: Final = 100.0
MAX_PENALTY: Final = 100.0
SEEDS: Final = 0xFFFFFFFE
"""Different seeds of llama.cpp; others are taken modulo this."""
THINKING_BUDGETS: Final = {"low": 1_024, "medium": 8_192}
"""Maximum tokens of thought by level; a level without an entry has no limit."""
