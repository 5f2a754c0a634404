"""/generate request → GenerationRequest. Pure; all functions raise InvalidRequest."""

from __future__ import annotations

from typing import Final

from jan_serve.core.messages import ContentPart, ImagePart, TextPart
from jan_serve.core.request import GenerationRequest, PartsPrompt, Prompt, TextPrompt, TokenPrompt
from jan_serve.dialects.lmdeploy.generate.wire import GenerateRequest
from jan_serve.dialects.lmdeploy.parse_common import (
    constraint_of,
    explicit_sampling,
    requested_session,
    sampling_params,
    stop_conditions,
)
from jan_serve.dialects.shared.wire_types import MAX_INT
from jan_serve.errors import InvalidRequest

_IMAGE_TOKEN: Final = "<IMAGE_TOKEN>"


def generate_request(body: GenerateRequest) -> GenerationRequest:
    """Checks in LMDeploy's order."""
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
    return GenerationRequest(
        prompt=_single_prompt(body),
        sampling=sampling_params(body, temperature=body.temperature, top_k=body.top_k),
        stopping=stop_conditions(
            body,
            max_tokens=body.max_tokens,
            stop_token_ids=_token_ids("stop_token_ids", body.stop_token_ids or ()),
        ),
        constraint=constraint_of(body.response_format),
        logprobs=0 if body.return_logprob else None,
        return_tokens=True,
        skip_special_tokens=body.skip_special_tokens is not False,
        given=explicit_sampling(body),
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
