"""Wire types of LMDeploy's /generate."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from jan_serve.dialects.lmdeploy.wire_common import GenerationFields
from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.wire_types import AtMost, FirstError, Int, Ints, LaxModel


class Image(LaxModel):
    """A data URL, or a URL of a host that the server may fetch from."""

    url: str


class GenerateRequest(GenerationFields):
    """Exactly one of a text and token ids to continue, without template."""

    prompt: str | None = None
    input_ids: Annotated[Ints | None, AtMost(limits.MAX_PROMPT_TOKENS, "input_ids")] = None
    image_data: Annotated[
        str | Image | Annotated[list[str | Image], FirstError()] | None,
        Field(
            description="Images for the places of `<IMAGE_TOKEN>` in the prompt; without these, before its text."
        ),
    ] = None
    return_logprob: bool | None = None
    return_routed_experts: bool | None = False
    max_tokens: Int = 128
    stop_token_ids: Annotated[Ints | None, AtMost(limits.MAX_STOP_TOKENS, "stop_token_ids")] = None
    temperature: float = 1.0
    top_k: Int = 0


class FinishReason(TypedDict):
    type: Literal["stop", "length", "abort", "error"]


class MetaInfo(TypedDict):
    """Counts so far. output_token_logprobs: a pair of log-probability and id for each of output_ids."""

    prompt_tokens: int
    completion_tokens: int
    finish_reason: FinishReason | None
    output_token_logprobs: list[tuple[float, int]] | None
    routed_experts: None


class GenerateReply(TypedDict):
    """The text and its token ids; in a stream, the new ones."""

    text: str
    output_ids: list[int]
    meta_info: MetaInfo
