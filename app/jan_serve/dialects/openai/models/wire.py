"""Wire types of the list of models."""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict


class ModelInputs(TypedDict):
    """What a model reads and writes, in OpenRouter's words: text, image, audio."""

    input_modalities: list[str]
    output_modalities: list[str]


class ModelData(TypedDict):
    """An available model. Lengths in tokens; null if the header was not read yet.

    root, parent: for a LoRA adapter, the model that it belongs to.
    """

    id: str
    object: Literal["model"]
    created: NotRequired[int]
    owned_by: str
    permissions: list[str]
    context_length: NotRequired[int | None]
    max_model_len: NotRequired[int | None]
    aliases: NotRequired[list[str]]
    architecture: NotRequired[ModelInputs]
    meta: NotRequired[dict[str, Any]]
    root: NotRequired[str]
    parent: NotRequired[str]


class ModelList(TypedDict):
    object: Literal["list"]
    data: list[ModelData]
