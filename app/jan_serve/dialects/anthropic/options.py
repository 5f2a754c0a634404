from __future__ import annotations

from functools import partial
from typing import Final

from pydantic import BaseModel, ConfigDict

from jan_serve.config.fields import setting

_setting: Final = partial(setting, "Anthropic")


class AnthropicOptions(BaseModel):
    """What the API does to prompts."""

    model_config = ConfigDict(defer_build=True)

    strip_billing_line: bool = _setting(
        True,
        "Remove a first line `x-anthropic-billing-header: …` from system prompts of Anthropic's routes:"
        " it changes with each request and would prevent reuse of the cached prompt.",
    )
