"""Limits on requests of all dialects, beyond the ranges of their APIs. Checked before any work is done."""

from __future__ import annotations

from typing import Final

MAX_CHOICES: Final = 128
"""Prompts of a call times the choices for each."""

MAX_MESSAGES: Final = 10_000
MAX_PARTS: Final = 1_000
"""Parts, or content blocks, of a message."""
MAX_TOOLS: Final = 512
MAX_TOOL_CALLS: Final = 1_000
MAX_TEMPLATE_KWARGS: Final = 64
MAX_EXTRA_FILES: Final = 1_000
MAX_DOCUMENTS: Final = 1_000
MAX_FILES: Final = 64
MAX_PATTERN: Final = 4_096
"""Tokens of a pattern, and patterns in a row, that end an answer."""

MAX_STOPS: Final = 64
MAX_STOP_TOKENS: Final = 1_024
MAX_LOGPROBS: Final = 100
MAX_ADAPTERS: Final = 32
MAX_OPTIONS: Final = 256
MAX_LOGIT_BIAS: Final = 1_024
MAX_BIAS: Final = 100.0
MAX_TEMPERATURE: Final = 100.0
MAX_PENALTY: Final = 100.0
SEEDS: Final = 0xFFFFFFFE
"""Different seeds of llama.cpp; others are taken modulo this."""
MAX_EMBEDDING_INPUTS: Final = 2_048
MAX_PROMPT_TOKENS: Final = 1 << 22
"""Token ids in an array; far beyond any context."""
MAX_CONSTRAINT_CHOICES: Final = 10_000
MAX_SCHEMA_DEPTH: Final = 100
"""Levels of a JSON Schema that is sent as a text."""
MAX_INCLUDE: Final = 64
MAX_METADATA: Final = 16
MAX_METADATA_KEY: Final = 64
MAX_METADATA_VALUE: Final = 512
MAX_PAGE: Final = 1_000
"""Models in one page of a list."""
