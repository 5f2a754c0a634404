"""Limits on LMDeploy's requests. Checked before any work is done."""

from __future__ import annotations

from typing import Final

MAX_CHOICES: Final = 128
"""Prompts of a call times the choices for each."""

MAX_PROMPTS: Final = 128
MAX_MESSAGES: Final = 10_000
MAX_PARTS: Final = 1_000
MAX_TOOLS: Final = 512
MAX_TEMPLATE_KWARGS: Final = 64
MAX_STOPS: Final = 64
MAX_STOP_TOKENS: Final = 1_024
MAX_LOGPROBS: Final = 100
MAX_LOGIT_BIAS: Final = 1_024
BIAS_BOUND: Final = 100.0
MAX_REPETITION_PENALTY: Final = 100.0
MAX_TEMPERATURE: Final = 2.0
MAX_INPUTS: Final = 2_048
MAX_PROMPT_TOKENS: Final = 1 << 22
"""Token ids in an array; far beyond any context."""

MAX_ENDPOINTS: Final = 64
MAX_SESSION_ID: Final = (1 << 63) - 1
