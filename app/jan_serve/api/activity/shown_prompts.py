"""A kept prompt as text, and how much of it the cache had."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple

from jan_serve.core.trace import KeptPrompt
from jan_serve.dialects.ports import ServedModels
from jan_serve.generation.deadline import RunningRequests
from jan_serve.generation.media_reader import SHOWN_MARKER
from jan_serve.generation.ports import EngineClient
from jan_serve.ipc.messages import DetokenizeRequest, TokenizeRequest


class ShownPrompt(NamedTuple):
    """cached_characters: how many at the start of the text the cache had; None where nobody knows."""

    text: str
    cached_characters: int | None


@asynccontextmanager
async def loaded_model(
    models: ServedModels, running: RunningRequests, name: str | None
) -> AsyncGenerator[EngineClient | None]:
    """The model, if it is in memory: a look at a prompt loads none."""
    if not any(each.name == name and each.state == "ready" for each in models.snapshot().models):
        yield None
        return
    async with AsyncExitStack() as stack:
        deadline = stack.enter_context(running.enter())
        yield await deadline.wait(stack.enter_async_context(models.lease(name)))


async def shown_prompt(
    prompt: KeptPrompt, cached_tokens: int | None, client: EngineClient | None
) -> ShownPrompt:
    """The prompt as text. client: None shows the ids of a prompt of tokens. Raises EngineFailure."""
    text = "".join([await _text(piece, client) for piece in prompt.pieces])
    cached = None if cached_tokens is None else await _cached_characters(prompt, cached_tokens, client)
    return ShownPrompt(text, cached)


async def _text(piece: str | tuple[int, ...] | None, client: EngineClient | None) -> str:
    if isinstance(piece, str):
        return piece
    if piece is None:
        return SHOWN_MARKER
    return str(list(piece)) if client is None else await _text_of(piece, client)


async def _text_of(ids: tuple[int, ...], client: EngineClient) -> str:
    return (await client.ask(DetokenizeRequest(tokens=ids, skip_special_tokens=False))).text


async def _cached_characters(prompt: KeptPrompt, left: int, client: EngineClient | None) -> int | None:
    """left: cached tokens. None behind an image or a sound, whose cells the text does not show."""
    characters = 0
    for number, piece in enumerate(prompt.pieces):
        if left <= 0:
            break
        if client is None or piece is None:
            return None
        if isinstance(piece, tuple):
            characters += len(await _text_of(piece[:left], client))
            left -= len(piece)
            continue
        request = TokenizeRequest(
            text=piece,
            add_special=prompt.add_special and number == 0,
            parse_special=prompt.parse_special,
            with_pieces=True,
        )
        tokens = (await client.ask(request)).pieces
        # Before the text may be BOS, or a blank of the tokeniser.
        start = b"".join(tokens).find(piece.encode())
        if start < 0:
            return None
        cached = b"".join(tokens[:left])[start : start + len(piece.encode())]
        characters += len(cached.decode(errors="ignore"))
        left -= len(tokens)
    return characters
