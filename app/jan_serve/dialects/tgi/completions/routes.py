"""TGI's text completions under /tgi: several prompts at once, mixed in one stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.core.events import Finished, GenerationEvent, Started, TextDelta, Timings
from jan_serve.dialects.shared.answers import Chunks, Events, answer_whole
from jan_serve.dialects.tgi.completions.wire import CompletionChoice, CompletionReply, CompletionRequest
from jan_serve.dialects.tgi.errors import BatchTooLarge, SuffixNotSupported, in_band_error
from jan_serve.dialects.tgi.generate.render import (
    Collected,
    Ending,
    TokenHold,
    TokenTexts,
    finish_reason,
    usage_of,
)
from jan_serve.dialects.tgi.generate.wire import Parameters
from jan_serve.dialects.tgi.job import Job, NativeRequest, answer_headers
from jan_serve.dialects.tgi.reply_facts import ReplyFacts, requested_model
from jan_serve.dialects.tgi.serving import Serving
from jan_serve.http.sse import DONE, STREAMED


def prompts_of(body: CompletionRequest, max_prompts: int) -> list[str]:
    """Raises BatchTooLarge, SuffixNotSupported."""
    if body.suffix is not None:
        raise SuffixNotSupported("Suffix is not supported and can be achieved by preprocessing the prompt.")
    prompts = [body.prompt] if isinstance(body.prompt, str) else body.prompt
    if len(prompts) > max_prompts:
        raise BatchTooLarge(f"Number of prompts exceeds the maximum allowed batch size of {max_prompts}")
    return prompts


def completion_parameters(body: CompletionRequest) -> Parameters:
    """A temperature of 0 is greedy; without one, the text is sampled."""
    greedy = body.temperature == 0
    return Parameters(
        temperature=None if greedy else body.temperature,
        do_sample=not greedy,
        top_p=None if greedy else body.top_p,
        repetition_penalty=body.repetition_penalty,
        frequency_penalty=body.frequency_penalty,
        max_new_tokens=body.max_tokens,
        stop=body.stop or [],
        seed=body.seed,
        details=True,
    )


class CompletionAnswer(Collected):
    """All continuations, in the order of their ends."""

    def __init__(self, head: ReplyFacts, endings: Sequence[Ending]) -> None:
        super().__init__(endings)
        self._head = head

    def body(self) -> CompletionReply:
        ended = [(index, self.sequences[index]) for index in self.order]
        reply = self._head.completion(
            [_choice(index, each.text, finish_reason(each.reason)) for index, each in ended]
        )
        reply["usage"] = self.usage
        return reply


class CompletionChunks:
    """The stream: one event a token, the prompts mixed. The last event of a prompt has its finish reason and counts."""

    def __init__(self, head: ReplyFacts, endings: Sequence[Ending]) -> None:
        self._head = head
        self._prompts = [(TokenHold(ending), TokenTexts()) for ending in endings]
        self._prompt_tokens = [0] * len(endings)

    def chunks(self, event: GenerationEvent) -> Iterator[CompletionReply]:
        match event:
            case Started() as started:
                self._prompt_tokens[started.prompt] = started.prompt_tokens
            case (TextDelta() | Finished()) as choice:
                index = choice.index
                hold, texts = self._prompts[index]
                for info, reason in hold.tokens(choice):
                    chunk = self._head.completion([_choice(index, texts.text(info), reason)])
                    if reason:
                        chunk["usage"] = usage_of(self._prompt_tokens[index], hold.count)
                    yield chunk
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
    prompts = prompts_of(body, serving.limits.max_client_batch_size)
    parameters = completion_parameters(body)
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
