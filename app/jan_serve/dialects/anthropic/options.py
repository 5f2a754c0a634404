from __future__ import annotations

from typing import Final

from pydantic import BaseModel, ConfigDict

from jan_serve.config.fields import setting

_PANEL: Final = "Anthropic"


class AnthropicOptions(BaseModel):
    """What the API does to prompts."""

    model_config = ConfigDict(defer_build=True)

    strip_billing_line: bool = setting(
        True,
        _PANEL,
        "Remove a first line `x-anthropic-billing-header: …` from system prompts of Anthropic's routes:"
        " it changes with each request and would prevent reuse of the cached prompt.",
    )
