"""Wire types of TGI's /v1/completions. They never leave this folder."""

from __future__ import annotations

from typing import Annotated, NotRequired

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError
from typing_extensions import TypedDict

from jan_serve.dialects.shared.wire_types import Strings, WireModel
from jan_serve.dialects.tgi.generate.wire import Seed, Unsigned, Usage


def _not_empty(prompt: str | list[str]) -> str | list[str]:
    if isinstance(prompt, list) and not prompt:
        raise PydanticCustomError(
            "empty_array", "Empty array detected. Do not use an empty array for the prompt."
        )
    return prompt


class CompletionRequest(WireModel):
    prompt: Annotated[str | Strings, AfterValidator(_not_empty)]
    model: str | None = None
    max_tokens: Unsigned | None = None
    temperature: float | None = None
    top_p: float | None = None
    repetition_penalty: float | None = None
    frequency_penalty: float | None = None
    stop: Strings | None = None
    seed: Seed | None = None
    stream: bool = False
    suffix: str | None = None


class CompletionChoice(TypedDict):
    """The continuation of the prompt `index`, or more of it. finish_reason: empty before the end of a stream."""

    index: int
    text: str
    logprobs: None
    finish_reason: str


class CompletionReply(TypedDict):
    """The whole reply, or one event of a stream, which has counts at the end of each prompt only."""

    object: str
    id: str
    created: int
    model: str
    system_fingerprint: str
    choices: list[CompletionChoice]
    usage: NotRequired[Usage]
