"""Where Text Generation Inference's routes are."""

from __future__ import annotations

from typing import Final

PREFIX: Final = "/tgi"
ROOT_PATHS: Final = (
    "/", "/generate", "/generate_stream", "/tokenize", "/chat_tokenize", "/info", "/invocations", "/vertex", "/ping",
)  # fmt: skip
"""At the root, where no other protocol has them."""
OPEN_PATHS: Final = ("/ping", PREFIX, f"{PREFIX}/", f"{PREFIX}/ping", f"{PREFIX}/health")
"""Signs of life. TGI serves its facts and metrics without a key too; here facts load a model."""
