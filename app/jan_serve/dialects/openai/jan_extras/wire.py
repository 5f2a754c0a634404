"""Wire types of the tokenize and grammar routes."""

from __future__ import annotations

from typing import Annotated, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from jan_serve.dialects.openai.wire_response_format import ConstraintFields
from jan_serve.dialects.shared.wire_types import Ints, WireModel


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
    """grammar: GBNF, with comments on what only the server can hold."""

    grammar: str
