"""The outlines of all dialects, for what serves no models itself."""

from __future__ import annotations

from typing import Final

from jan_serve.dialects.anthropic.outline import OUTLINE as ANTHROPIC
from jan_serve.dialects.decisions.outline import OUTLINE as DECISIONS
from jan_serve.dialects.lmdeploy.outline import OUTLINE as LMDEPLOY
from jan_serve.dialects.lmstudio.outline import OUTLINE as LM_STUDIO
from jan_serve.dialects.ollama.outline import OUTLINE as OLLAMA
from jan_serve.dialects.openai.outline import OUTLINE as OPENAI
from jan_serve.dialects.outline import Outline
from jan_serve.dialects.rerank.outline import OUTLINE as RERANK
from jan_serve.dialects.tgi.outline import OUTLINE as TGI

OUTLINES: Final[tuple[Outline, ...]] = (
    OPENAI,
    ANTHROPIC,
    TGI,
    LMDEPLOY,
    OLLAMA,
    LM_STUDIO,
    RERANK,
    DECISIONS,
)
