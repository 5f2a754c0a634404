"""Where documents are ranked, and what a proxy knows of these routes."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from jan_serve.dialects.outline import Outline, routes
from jan_serve.dialects.shared.default_error_body import render_error
from jan_serve.http.errors import Problem
from jan_serve.http.replies import json_reply

PLAIN: Final = ("/rerank", "/reranking", "/v1/rerank", "/v1/reranking")
"""llama-server's and Jina's form; Text Embeddings Inference's if the body has `texts`. Errors are OpenAI's, as
llama-server's are."""
COHERE: Final = "/v2/rerank"


def _cohere_error(problem: Problem) -> Response:
    return json_reply({"message": problem.message}, problem.status)


OUTLINE: Final = Outline(
    (COHERE, *PLAIN),
    errors={COHERE: _cohere_error, **dict.fromkeys(PLAIN, render_error)},
    forwarded=routes(*PLAIN, COHERE),
)
