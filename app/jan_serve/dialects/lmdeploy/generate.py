"""LMDeploy's /generate: types, the GenerationRequest, and the answer, whole and as a stream. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Final, Literal

from pydantic import Field
from typing_extensions import TypedDict

from jan_serve.core.events import Finished, GenerationEvent, TextDelta, TokenInfo
from jan_serve.core.events import FinishReason as CoreReason
from jan_serve.core.messages import ContentPart, ImagePart, TextPart
from jan_serve.core.request import GenerationRequest, PartsPrompt, Prompt, TextPrompt, TokenPrompt
from jan_serve.dialects.lmdeploy.common import (
    Answer,
    GenerationFields,
    ids_of,
    request_of,
    requested_session,
    stop_conditions,
    texts_of,
)
from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.wire_types import MAX_INT, AtMost, FirstError, Int, Ints, LaxModel
from jan_serve.errors import InvalidRequest


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


_IMAGE_TOKEN: Final = "<IMAGE_TOKEN>"


def generate_request(body: GenerateRequest) -> GenerationRequest:
    """The request of a body, checked in LMDeploy's order."""
    if (body.prompt is None) == (body.input_ids is None):
        raise InvalidRequest("You must specify exactly one of prompt or input_ids", param="prompt")
    if body.prompt == "":
        raise InvalidRequest("The prompt must not be an empty string", param="prompt")
    if body.input_ids == []:
        raise InvalidRequest("The input_ids must not be an empty list", param="input_ids")
    if body.max_tokens <= 0:
        raise InvalidRequest(
            f"The max_tokens {str(body.max_tokens)[:20]} must be a positive integer.", param="max_tokens"
        )
    requested_session(body.session_id)
    stops = _token_ids("stop_token_ids", body.stop_token_ids or ())
    return request_of(
        body,
        _single_prompt(body),
        stop_conditions(body, max_tokens=body.max_tokens, stop_token_ids=stops),
        logprobs=0 if body.return_logprob else None,
    )


def _single_prompt(body: GenerateRequest) -> Prompt:
    images = _images(body)
    if body.input_ids is not None:
        if images:
            raise InvalidRequest("image_data: images need a prompt, not input_ids", param="image_data")
        return TokenPrompt(_token_ids("input_ids", body.input_ids), param="input_ids")
    assert body.prompt is not None
    return PartsPrompt(_with_images(body.prompt, images)) if images else TextPrompt(body.prompt)


def _images(body: GenerateRequest) -> list[ImagePart]:
    data = body.image_data
    if not isinstance(data, list):
        data = [] if data is None else [data]
    return [
        ImagePart(each if isinstance(each, str) else each.url, f"image_data[{index}]")
        for index, each in enumerate(data)
    ]


def _with_images(prompt: str, images: list[ImagePart]) -> tuple[ContentPart, ...]:
    texts = prompt.split(_IMAGE_TOKEN)
    if len(texts) == 1:
        return (*images, TextPart(prompt))
    if len(texts) - 1 != len(images):
        raise InvalidRequest(
            f"image_data: {len(images)} images for {len(texts) - 1} places of {_IMAGE_TOKEN} in the prompt",
            param="image_data",
        )
    pairs = zip(images, texts[1:], strict=True)
    parts = [TextPart(texts[0]), *(part for image, text in pairs for part in (image, TextPart(text)))]
    return tuple(part for part in parts if isinstance(part, ImagePart) or part.text)


def _token_ids(name: str, ids: list[int] | tuple[int, ...]) -> tuple[int, ...]:
    for token in ids:
        if not 0 <= token <= MAX_INT:
            raise InvalidRequest(f"{name}: {str(token)[:20]} is not a token id", param=name)
    return tuple(ids)


class GenerateRenderer(Answer):
    """logprobs: show pairs of log-probability and id. A stream has new text with the counts so far, then the finish
    reason."""

    def __init__(self, *, include_stop: bool, logprobs: bool) -> None:
        super().__init__(1, include_stop=include_stop)
        self._logprobs = logprobs

    def body(self) -> GenerateReply:
        (choice,) = self.choices
        return self._reply(choice.text, choice.tokens, choice.reason)

    def chunks(self, event: GenerationEvent) -> Iterator[GenerateReply]:
        self.add(event)
        match event:
            case TextDelta() as delta if delta.text or delta.tokens:
                yield self._reply(delta.text, delta.tokens, None)
            case Finished() as finished:
                end = self.shown_end(finished)
                yield self._reply(texts_of(end), end, finished.reason, last=True)
            case _:
                pass

    def _reply(
        self, text: str, tokens: Sequence[TokenInfo], reason: CoreReason | None, *, last: bool = False
    ) -> GenerateReply:
        """tokens: their ids go into the reply. last: the end of a stream, which has null in place of empty logprobs."""
        finish: FinishReason | None = None
        if reason is not None:
            finish = {"type": "stop" if reason == "tool_calls" else reason}
        pairs = [(min(token.logprob or 0.0, 0.0), token.id) for token in tokens] if self._logprobs else None
        return {
            "text": text,
            "output_ids": ids_of(tokens),
            "meta_info": {
                "prompt_tokens": self.prompt_tokens,
                "completion_tokens": self.completion_tokens,
                "finish_reason": finish,
                "output_token_logprobs": None if last and not tokens else pairs,
                "routed_experts": None,
            },
        }
