"""Wire types of /api/v0/models."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict


class LmStudioModel(TypedDict):
    """Lengths in tokens: of the training, and of the loaded model."""

    id: str
    object: Literal["model"]
    type: Literal["llm", "vlm", "embeddings"]
    publisher: str
    arch: str
    compatibility_type: Literal["gguf"]
    quantization: str
    state: Literal["loaded", "not-loaded"]
    max_context_length: int
    loaded_context_length: NotRequired[int]


class LmStudioModels(TypedDict):
    object: Literal["list"]
    data: list[LmStudioModel]
