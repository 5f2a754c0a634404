"""Where documents are ranked."""

from __future__ import annotations

from typing import Final

PLAIN: Final = ("/rerank", "/reranking", "/v1/rerank", "/v1/reranking")
"""llama-server's and Jina's form; Text Embeddings Inference's if the body has `texts`."""
COHERE: Final = "/v2/rerank"
