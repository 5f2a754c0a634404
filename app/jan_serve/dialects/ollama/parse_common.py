"""Fields that several of Ollama's requests share as core values. Pure; raises InvalidRequest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from jan_serve.core.constraint import Constraint, JsonObjectConstraint, JsonSchemaConstraint
from jan_serve.core.messages import ContentPart, ImagePart, TextPart
from jan_serve.core.request import ChatPrompt, GenerationRequest, Prompt
from jan_serve.dialects.ollama.options import Options, parse_options
from jan_serve.dialects.ollama.wire_common import AnswerFields, ModelFields
from jan_serve.dialects.shared.keep_alive import keep_alive_s
from jan_serve.dialects.shared.reasoning_effort import REASONING_BUDGETS
from jan_serve.errors import InvalidRequest
from jan_serve.generation.media_files import too_many_images
from jan_serve.image_files.limits import MAX_IMAGES

_LEVELS: Final = ("low", "medium", "high", "max")


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed request; `serving` checks it against the model once that is loaded.

    task: `chat` or `generate`. think: None is the model's habit. num_ctx: the expected context. warnings: as in
    core.events.Started.
    """

    request: GenerationRequest
    task: str
    think: bool | str | None
    num_ctx: int | None
    warnings: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The model's name as the request has it."""
        return self.request.model or ""


def model_name(body: ModelFields) -> str:
    name = body.model or body.name
    if not name:
        raise InvalidRequest("model is required", param="model")
    return name


def unloads(body: AnswerFields) -> bool:
    """Whether a request without a prompt unloads the model rather than loading it."""
    return keep_alive_s(body.keep_alive) == 0


def job_of(body: AnswerFields, prompt: Prompt, task: str, warnings: tuple[str, ...] = ()) -> Job:
    options: Options = parse_options(body.options)
    think = think_of(body.think)
    return Job(
        request=GenerationRequest(
            model=model_name(body),
            prompt=prompt,
            sampling=options.sampling,
            stopping=options.stopping,
            constraint=constraint_of(body.format),
            constraint_field="format",
            logprobs=(body.top_logprobs or 0) if body.logprobs else None,
            given=options.given,
            keep_alive_s=keep_alive_s(body.keep_alive),
        ),
        task=task,
        think=think,
        num_ctx=options.num_ctx,
        warnings=warnings,
    )


def think_of(value: bool | str | None) -> bool | str | None:
    if isinstance(value, str) and value not in _LEVELS:
        raise InvalidRequest(
            f'invalid think value: {value[:40]!r} (must be "high", "medium", "low", "max", true, or false)',
            param="think",
        )
    return value


def constraint_of(value: str | dict[str, Any] | None) -> Constraint | None:
    if not value and not isinstance(value, dict):
        return None
    if isinstance(value, dict):
        return JsonSchemaConstraint(value)
    if value != "json":
        raise InvalidRequest(
            f'invalid format: {value[:40]!r}; expected "json" or a valid JSON Schema object', param="format"
        )
    return JsonObjectConstraint()


def content_of(text: str, images: Sequence[str] | None, field: str) -> str | tuple[ContentPart, ...]:
    """Images, base64 or data URLs, precede the text. field: of the images."""
    if not images:
        return text
    if len(images) > MAX_IMAGES:
        raise too_many_images(f"{field}[{MAX_IMAGES}]", len(images))
    parts = [ImagePart(image, f"{field}[{index}]") for index, image in enumerate(images)]
    return (*parts, *([TextPart(text)] if text else ()))


def thinking(prompt: ChatPrompt, think: bool | str) -> dict[str, Any]:
    """The fields of ChatPrompt that turn thoughts on or off, or limit them."""
    kwargs = {**prompt.template_kwargs, "enable_thinking": think is not False}
    if not isinstance(think, str):
        return {"template_kwargs": kwargs, "reasoning_budget": None if think else 0}
    return {
        "template_kwargs": {**kwargs, "reasoning_effort": think},
        "reasoning_budget": REASONING_BUDGETS.get(think),
    }
