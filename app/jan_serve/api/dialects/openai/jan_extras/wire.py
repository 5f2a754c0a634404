"""Wire types of the small routes: models, tokenising, grammars. They never leave this folder."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from jan_serve.api.dialects.openai.wire_response_format import ResponseFormat
from jan_serve.api.shared.wire_types import Ints, WireModel


class ModelData(TypedDict):
    """A model that can be asked for. Lengths in tokens; null where the header was not read yet.

    root, parent: of a LoRA adapter, the model that it belongs to.
    """

    id: str
    object: Literal["model"]
    created: NotRequired[int]
    owned_by: str
    permissions: list[str]
    context_length: NotRequired[int | None]
    max_model_len: NotRequired[int | None]
    aliases: NotRequired[list[str]]
    meta: NotRequired[dict[str, Any]]
    root: NotRequired[str]
    parent: NotRequired[str]


class ModelList(TypedDict):
    """All of them."""

    object: Literal["list"]
    data: list[ModelData]


class TokenizeInputRequest(WireModel):
    """Text to tokenise."""

    input: str
    model: str | None = None
    with_pieces: Annotated[bool, Field(description="Whether to tell the text of each token too.")] = False


class TokenizeInputResponse(TypedDict):
    """Its token ids. pieces: the text of each, or its bytes where it is a part of a character."""

    tokens: list[int]
    pieces: NotRequired[list[str | list[int]]]


class TokenizeInputCountResponse(TypedDict):
    """How many there are."""

    count: int


class DetokenizeInputRequest(WireModel):
    """Token ids to turn into text."""

    tokens: Ints
    model: str | None = None


class DetokenizeInputResponse(TypedDict):
    """The text."""

    text: str


class GrammarRequest(WireModel):
    """A constraint, as generation requests have it. response_format has precedence."""

    response_format: ResponseFormat | None = None
    grammar: Annotated[str | None, Field(description="GBNF, or the name of a grammar.")] = None


class GrammarResponse(TypedDict):
    """GBNF of the same language."""

    grammar: str
