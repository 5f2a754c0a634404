"""The dialects that a server has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from jan_serve.config import Settings
from jan_serve.dialects.anthropic.dialect import anthropic_dialect
from jan_serve.dialects.decisions.dialect import decisions_dialect
from jan_serve.dialects.dialect import Dialect, Services
from jan_serve.dialects.lmdeploy.dialect import lmdeploy_dialect
from jan_serve.dialects.lmstudio.dialect import lmstudio_dialect
from jan_serve.dialects.ollama.dialect import ollama_dialect
from jan_serve.dialects.openai.dialect import openai_dialect
from jan_serve.dialects.rerank.dialect import rerank_dialect
from jan_serve.dialects.tgi.dialect import tgi_dialect

DialectFactory = Callable[[Settings, Services], Dialect]
"""Called once per application. Takes the dialect's options from the settings."""

DIALECTS: Final[tuple[DialectFactory, ...]] = (
    openai_dialect,
    anthropic_dialect,
    tgi_dialect,
    lmdeploy_dialect,
    ollama_dialect,
    lmstudio_dialect,
    rerank_dialect,
    decisions_dialect,
)
"""In route order: the first dialect that has a path serves it."""
