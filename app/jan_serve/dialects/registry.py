"""The dialects that a server has."""

from __future__ import annotations

from collections.abc import Callable
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


def _ollama(services: Services) -> APIRouter:
    from jan_serve.dialects.ollama.routes import ollama_router

    return ollama_router(services)


def _lm_studio(services: Services) -> APIRouter:
    from jan_serve.dialects.lmstudio.routes import lmstudio_router

    return lmstudio_router(services)


def _rerank(services: Services) -> APIRouter:
    from jan_serve.dialects.rerank.routes import rerank_router

    return rerank_router(services)


def _decisions(services: Services) -> APIRouter:
    from jan_serve.dialects.decisions.routes import decisions_router

    return decisions_router(services)


def _plain(outline: Outline, router: Callable[[Services], APIRouter]) -> DialectFactory:
    """A dialect that has no options, and nothing besides its routes."""
    return lambda _, services: Dialect(outline, lambda: router(services))


ollama_dialect: Final = _plain(outlines.OLLAMA, _ollama)
lmstudio_dialect: Final = _plain(outlines.LM_STUDIO, _lm_studio)

DIALECTS: Final[tuple[DialectFactory, ...]] = (
    openai_dialect,
    anthropic_dialect,
    tgi_dialect,
    lmdeploy_dialect,
    ollama_dialect,
    lmstudio_dialect,
    _plain(outlines.RERANK, _rerank),
    _plain(outlines.DECISIONS, _decisions),
)
"""Dialects in the order of their routes: the first one that has a path serves it."""
