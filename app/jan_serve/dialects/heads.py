"""The heads of all dialects, for what serves no models itself."""

from __future__ import annotations

from typing import Final

from jan_serve.dialects.anthropic.head import HEAD as ANTHROPIC
from jan_serve.dialects.decisions.head import HEAD as DECISIONS
from jan_serve.dialects.head import Head
from jan_serve.dialects.lmdeploy.head import HEAD as LMDEPLOY
from jan_serve.dialects.lmstudio.head import HEAD as LM_STUDIO
from jan_serve.dialects.ollama.head import HEAD as OLLAMA
from jan_serve.dialects.openai.head import HEAD as OPENAI
from jan_serve.dialects.rerank.head import HEAD as RERANK
from jan_serve.dialects.tgi.head import HEAD as TGI

HEADS: Final[tuple[Head, ...]] = (OPENAI, ANTHROPIC, TGI, LMDEPLOY, OLLAMA, LM_STUDIO, RERANK, DECISIONS)
