"""Text to token ids and back, by the vocabulary of a model."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack

from jan_serve.generation.deadline import RunningRequests
from jan_serve.generation.ports import ModelLeases
from jan_serve.ipc.messages import DetokenizeRequest, Tokenized, TokenizeRequest


class TokenizerService:
    """Tokenises in the model's worker, which loads the model if it is not."""

    def __init__(self, models: ModelLeases, running: RunningRequests) -> None:
        self._models = models
        self._running = running

    async def tokenize(
        self,
        model: str | None,
        text: str,
        *,
        add_special: bool = True,
        parse_special: bool = True,
        with_pieces: bool = False,
    ) -> Tokenized:
        """Ids of `text`. add_special: BOS/EOS as the GGUF says; parse_special: special tokens by their text."""
        with self._running.enter() as deadline:
            async with AsyncExitStack() as stack:
                client = await deadline.wait(stack.enter_async_context(self._models.lease(model)))
                request = TokenizeRequest(
                    id=client.next_id(),
                    text=text,
                    add_special=add_special,
                    parse_special=parse_special,
                    with_pieces=with_pieces,
                )
                return await deadline.wait(client.tokenize(request))

    async def detokenize(
        self, model: str | None, tokens: Sequence[int], *, skip_special_tokens: bool = True
    ) -> str:
        """Text of ids; bytes that are not UTF-8 become U+FFFD. Raises InvalidRequest for an unknown id."""
        with self._running.enter() as deadline:
            async with AsyncExitStack() as stack:
                client = await deadline.wait(stack.enter_async_context(self._models.lease(model)))
                request = DetokenizeRequest(
                    id=client.next_id(), tokens=tuple(tokens), skip_special_tokens=skip_special_tokens
                )
                return await deadline.wait(client.detokenize(request))
