"""Several prompts of one call, run side by side: choice i of prompt p is choice p * n + i of the answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence

import msgspec

from jan_serve.core.closing import closing
from jan_serve.core.events import (
    Completed,
    EngineWork,
    Finished,
    GenerationEvent,
    Progress,
    PromptTokens,
    ReasoningDelta,
    Started,
    TextDelta,
    Timings,
    ToolCallDelta,
    Usage,
)
from jan_serve.core.request import GenerationRequest

Generate = Callable[[GenerationRequest], AsyncGenerator[GenerationEvent]]


def generate_batch(
    generate: Generate, requests: Sequence[GenerationRequest]
) -> AsyncGenerator[GenerationEvent]:
    """The events of several prompts of one call as they come: every Started first, one Completed with the sums last.
    Choice i of prompt p is choice p * n + i. An error of one request ends all. Closing the iterator aborts all."""
    return generate(requests[0]) if len(requests) == 1 else _together(generate, requests)


async def _together(
    generate: Generate, requests: Sequence[GenerationRequest]
) -> AsyncGenerator[GenerationEvent]:
    async with closing(_merged(generate, requests)) as merged:
        held: list[GenerationEvent] = []
        waiting = len(requests)
        usage, timings, work = Usage(), Timings(), EngineWork()
        async for item in merged:
            match item:
                case Started():
                    waiting -= 1
                    held.insert(len(requests) - waiting - 1, item)
                    if waiting == 0:
                        for early in held:
                            yield early
                case Completed():
                    usage, timings = usage.plus(item.usage), timings.longer(item.timings)
                    work.add(item.work)
                case _ if waiting:
                    held.append(item)
                case _:
                    yield item
        yield Completed(usage=usage, timings=timings, work=work)


async def _merged(
    generate: Generate, requests: Sequence[GenerationRequest]
) -> AsyncGenerator[GenerationEvent]:
    """Events of all requests in order of arrival. Each reader waits until its event is taken."""
    queue: asyncio.Queue[GenerationEvent | Exception | None] = asyncio.Queue(maxsize=1)

    async def read(prompt: int, request: GenerationRequest) -> None:
        try:
            async with closing(generate(request)) as events:
                async for event in events:
                    await queue.put(_placed(event, prompt, request.n))
        except Exception as error:  # raised by the reader of the queue, in place of the next event
            await queue.put(error)
        else:
            await queue.put(None)

    tasks = [asyncio.create_task(read(prompt, request)) for prompt, request in enumerate(requests)]
    try:
        left = len(tasks)
        while left:
            match await queue.get():
                case None:
                    left -= 1
                case Exception() as error:
                    raise error
                case event:
                    yield event
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _placed(event: GenerationEvent, prompt: int, n: int) -> GenerationEvent:
    """The event with the indices of the whole call. n: choices of the prompt."""
    match event:
        case Started() | PromptTokens() | Progress():
            return msgspec.structs.replace(event, prompt=prompt)
        case TextDelta() | ReasoningDelta() | ToolCallDelta() | Finished():
            return msgspec.structs.replace(event, index=event.index + prompt * n)
        case _:
            return event
