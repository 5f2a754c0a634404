"""Wire types of the models, tokenize and grammar routes."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from jan_serve.dialects.openai.wire_response_format import ConstraintFields
from jan_serve.dialects.shared.wire_types import Ints, WireModel


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


class TokenizeInputRequest(WireModel):
    input: str
    model: str | None = None
    with_pieces: Annotated[bool, Field(description="Return the text of each token too.")] = False


class TokenizeInputResponse(TypedDict):
    """pieces: the text of each token, or its bytes if it is part of a character."""

    tokens: list[int]
    pieces: NotRequired[list[str | list[int]]]


class TokenizeInputCountResponse(TypedDict):
    count: int


class DetokenizeInputRequest(WireModel):
    tokens: Ints
    model: str | None = None


class DetokenizeInputResponse(TypedDict):
    text: str


class GrammarRequest(ConstraintFields):
    """A constraint, in any field of generation requests."""


class ExplanationResponse(TypedDict):
    """lines: what the schema costs, or why it is rejected and the smallest change with which it is not."""

    compiles: bool
    lines: list[str]


class GrammarResponse(TypedDict):
    """grammar: GBNF of the same language."""

    grammar: str
