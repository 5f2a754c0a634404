"""The settings of a server with all dialects: each declares its own options in `options` of its folder."""

from __future__ import annotations

from jan_serve.config.settings import Settings
from jan_serve.dialects.anthropic.options import AnthropicOptions
from jan_serve.dialects.lmdeploy.options import LmdeployOptions
from jan_serve.dialects.openai.options import OpenAIOptions
from jan_serve.dialects.tgi.options import TgiOptions


class ServerSettings(Settings, OpenAIOptions, AnthropicOptions, TgiOptions, LmdeployOptions):
    """The fields' order is that of the documentation."""
