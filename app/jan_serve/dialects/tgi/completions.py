"""TGI's text completions under /tgi: several prompts at once, mixed in one stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, NotRequired

from fastapi import APIRouter
from pydantic import AfterValidator
from pydantic_core import PydanticCustomError
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from jan_serve.core.events import Finished, GenerationEvent, Started, TextDelta, Timings
from jan_serve.dialects.shared.answers import Chunks, Events, answer_whole
from jan_serve.dialects.shared.wire_types import Strings
from jan_serve.dialects.tgi.errors import BatchTooLarge, SuffixNotSupported, in_band_error
from jan_serve.dialects.tgi.generate.parse import SampledRequest, Usage, sampled_parameters
from jan_serve.dialects.tgi.generate.render import (
    Collected,
    Ending,
    ReplyFacts,
    TokenHold,
    TokenTexts,
    finish_reason,
    usage_of,
)
from jan_serve.dialects.tgi.serving import Job, NativeRequest, Serving, answer_headers, requested_model
from jan_serve.http.sse import DONE, STREAMED


def _not_empty(prompt: str | list[str]) -> str | list[str]:
    if isinstance(prompt, list) and not prompt:
        raise PydanticCustomError(
            "empty_array", "Empty array detected. Do not use an empty array for the prompt."
        )
    return prompt


class CompletionRequest(SampledRequest):
    prompt: Annotated[str | Strings, AfterValidator(_not_empty)]
    repetition_penalty: float | None = None
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


def prompts_of(body: CompletionRequest, max_prompts: int) -> list[str]:
    """Raises BatchTooLarge, SuffixNotSupported."""
    if body.suffix is not None:
        raise SuffixNotSupported("Suffix is not supported and can be achieved by preprocessing the prompt.")
    prompts = [body.prompt] if isinstance(body.prompt, str) else body.prompt
    if len(prompts) > max_prompts:
        raise BatchTooLarge(f"Number of prompts exceeds the maximum allowed batch size of {max_prompts}")
    return prompts


class CompletionAnswer(Collected):
    """All continuations, in the order of their ends."""

    def __init__(self, head: ReplyFacts, endings: Sequence[Ending]) -> None:
        super().__init__(endings)
        self._head = head

    def body(self) -> dict[str, Any]:
        ended = [(index, self.sequences[index]) for index in self.order]
        choices = [_choice(index, each.text, finish_reason(each.reason)) for index, each in ended]
        return {**self._head.head("text_completion"), "choices": choices, "usage": self.usage}


class CompletionChunks:
    """The stream: one event a token, the prompts mixed. The last event of a prompt has its finish reason and counts."""

    def __init__(self, head: ReplyFacts, endings: Sequence[Ending]) -> None:
        self._head = head
        self._prompts = [(TokenHold(ending), TokenTexts()) for ending in endings]
        self._prompt_tokens = [0] * len(endings)

    def chunks(self, event: GenerationEvent) -> Iterator[dict[str, Any]]:
        match event:
            case Started() as started:
                self._prompt_tokens[started.prompt] = started.prompt_tokens
            case (TextDelta() | Finished()) as choice:
                index = choice.index
                hold, texts = self._prompts[index]
                for info, reason in hold.tokens(choice):
                    usage = usage_of(self._prompt_tokens[index], hold.count)
                    choices = [_choice(index, texts.text(info), reason)]
                    head = self._head.head("text_completion")
                    yield {**head, "choices": choices, **({"usage": usage} if reason else {})}
            case _:
                pass


def _choice(index: int, text: str, reason: str) -> CompletionChoice:
    return {"index": index, "text": text, "logprobs": None, "finish_reason": reason}


def add_completion_routes(router: APIRouter, serving: Serving) -> None:
    @router.post("/tgi/v1/completions", response_model=CompletionReply, responses=STREAMED)
    async def completions(request: Request, body: CompletionRequest) -> Response:
        """Continue a text, or several."""
        return await serve_completions(request, serving, body)


async def serve_completions(request: Request, serving: Serving, body: CompletionRequest) -> Response:
    """POST /v1/completions. Raises errors of the tree, and ClientGone."""
    serving.metrics.count("tgi_request_count")
    prompts = prompts_of(body, serving.limits.tgi_max_client_batch_size)
    parameters = sampled_parameters(body, repetition_penalty=body.repetition_penalty)
    natives = [NativeRequest(prompt, parameters, stream=body.stream) for prompt in prompts]
    async with serving.lease(request, requested_model(body.model)) as lease:

        async def begin() -> tuple[Sequence[Job], Events, Chunks]:
            jobs = [await lease.job(native) for native in natives]
            chunks = CompletionChunks(ReplyFacts(jobs[0].model), [job.ending for job in jobs])
            return jobs, lease.stream(lease.events(jobs)), chunks.chunks

        if body.stream:
            return await serving.streamed(request, begin, in_band_error, done=DONE)
        jobs = [await lease.job(native) for native in natives]
        answer = CompletionAnswer(ReplyFacts(jobs[0].model), [job.ending for job in jobs])
        timings: list[Timings] = []
        response = await answer_whole(request, lease.events(jobs, timings), answer)
        headers = answer_headers(jobs, timings, answer.generated_tokens)
        del headers["x-compute-time"]
        response.headers.update(headers)
        return response
