"""The dialects that a server has."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Final

from fastapi import APIRouter

from jan_serve.config import Settings
from jan_serve.dialects import outlines
from jan_serve.dialects.anthropic.dialect import anthropic_dialect
from jan_serve.dialects.dialect import Dialect, Services
from jan_serve.dialects.lmdeploy.dialect import lmdeploy_dialect
from jan_serve.dialects.openai.dialect import openai_dialect
from jan_serve.dialects.outline import Outline
from jan_serve.dialects.tgi.dialect import tgi_dialect

DialectFactory = Callable[[Settings, Services], Dialect]
"""Called once per application. Takes the dialect's options from the settings."""


def _plain(outline: Outline, name: str) -> DialectFactory:
    """A dialect that has no options, and nothing besides its routes: those of `NAME_router` in its `routes`."""

    def router(services: Services) -> APIRouter:
        return getattr(import_module(f"jan_serve.dialects.{name}.routes"), f"{name}_router")(services)

    return lambda _, services: Dialect(outline, lambda: router(services))


ollama_dialect: Final = _plain(outlines.OLLAMA, "ollama")
lmstudio_dialect: Final = _plain(outlines.LM_STUDIO, "lmstudio")

DIALECTS: Final[tuple[DialectFactory, ...]] = (
    openai_dialect,
    anthropic_dialect,
    tgi_dialect,
    lmdeploy_dialect,
    ollama_dialect,
    lmstudio_dialect,
    _plain(outlines.RERANK, "rerank"),
    _plain(outlines.DECISIONS, "decisions"),
)
"""Dialects in the order of their routes: the first one that has a path serves it."""
