"""The prompt that a chat would be, without generating, and the facts of a model beside it."""

from __future__ import annotations

from contextlib import AsyncExitStack

from jan_serve.core.model_facts import ModelFacts
from jan_serve.core.request import ChatPrompt
from jan_serve.generation.deadline import RunningRequests
from jan_serve.generation.ports import ModelLeases
from jan_serve.generation.prepare import RequestPreparer


class TemplateService:
    """Renders with the model's template, which loads the model if it is not."""

    def __init__(self, models: ModelLeases, preparer: RequestPreparer, running: RunningRequests) -> None:
        self._models = models
        self._preparer = preparer
        self._running = running

    async def apply(self, model: str | None, prompt: ChatPrompt) -> str:
        """The text that the model would be given. Raises TemplateError and InvalidRequest."""
        with self._running.enter() as deadline:
            async with AsyncExitStack() as stack:
                client = await deadline.wait(stack.enter_async_context(self._models.lease(model)))
                return await deadline.wait(self._preparer.chat_text(prompt, client))

    async def shows_tools(self, model: str | None) -> bool:
        """Whether the model's template writes the tools of a chat by itself."""
        with self._running.enter() as deadline:
            async with AsyncExitStack() as stack:
                client = await deadline.wait(stack.enter_async_context(self._models.lease(model)))
                return self._preparer.shows_tools(client)

    async def facts(self, model: str | None) -> tuple[str, ModelFacts]:
        """The model's name and facts."""
        with self._running.enter() as deadline:
            async with AsyncExitStack() as stack:
                client = await deadline.wait(stack.enter_async_context(self._models.lease(model)))
                return client.name, client.facts
