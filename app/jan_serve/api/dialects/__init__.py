"""The public protocols, one folder each. They share parts of `api` and never import each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from jan_serve.api.dialect import Dialect, Services
from jan_serve.api.dialects.anthropic import anthropic_dialect
from jan_serve.api.dialects.decisions import decisions_dialect
from jan_serve.api.dialects.lmdeploy import lmdeploy_dialect
from jan_serve.api.dialects.lmstudio import lmstudio_dialect
from jan_serve.api.dialects.ollama import ollama_dialect
from jan_serve.api.dialects.openai import openai_dialect
from jan_serve.api.dialects.rerank import rerank_dialect
from jan_serve.api.dialects.tgi import tgi_dialect
from jan_serve.config import Settings

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
