"""One application's state for LMDeploy's routes, and sessions: requests by id, which `/abort_request` can end."""

from __future__ import annotations

import msgspec

from jan_serve.core.caller import key_of_request
from jan_serve.core.closing import closing
from jan_serve.core.events import (
    Completed,
    Finished,
    GenerationEvent,
    ReasoningDelta,
    Started,
    TextDelta,
    Usage,
)
from jan_serve.core.transcript import random_hex
from jan_serve.dialects.dialect import Services
from jan_serve.dialects.shared.answers import Events
from jan_serve.errors import InvalidRequest, JanServeError
from jan_serve.generation.deadline import Deadline
from jan_serve.generation.service import GenerationService

_ID_BITS = 52
"""Size of drawn ids: every client reads such integers exactly (RFC 8259, section 6)."""


class _Aborted(JanServeError):
    """`/abort_request` ended the request."""


class Session:
    """One request. caller: its key. id: before the first event, the requested id or None; then the actual one."""

    def __init__(self, registry: Sessions, requested_id: int | None) -> None:
        self._registry = registry
        self.caller = key_of_request()
        self._deadline = Deadline(None)
        self.requested_id = requested_id
        self.id = requested_id

    def abort(self) -> None:
        """End the answer here, with the reason `abort`."""
        self._deadline.expire(_Aborted("The request was aborted."))

    async def run(self, events: Events, *, choices: int) -> Events:
        """The events of the request, whose id is registered meanwhile. On abort, running choices end with `abort`.

        choices: of all prompts together. Raises InvalidRequest if the id is in use.
        """
        progress = _Progress(choices)
        self.id = self._registry.enter(self)
        try:
            async with closing(events):
                try:
                    while (event := await self._deadline.wait(_next(events))) is not None:
                        progress.observe(event)
                        yield event
                except _Aborted:
                    pass
                else:
                    return
            for ending in progress.endings():
                yield ending
        finally:
            self._registry.leave(self)


class Sessions:
    """live: by key and id."""

    def __init__(self) -> None:
        self.live: dict[tuple[str, int], Session] = {}

    def enter(self, session: Session) -> int:
        """Register the session. Raises InvalidRequest if its id is in use."""
        session_id = session.requested_id
        if session_id is None:
            session_id = int(random_hex(8), 16) >> (64 - _ID_BITS)
        elif (session.caller, session_id) in self.live:
            raise InvalidRequest(f"The session_id {session_id} is occupied.", param="session_id")
        self.live[session.caller, session_id] = session
        return session_id

    def leave(self, session: Session) -> None:
        if session.id is not None and self.live.get((session.caller, session.id)) is session:
            del self.live[session.caller, session.id]

    def abort(self, session_id: int) -> bool:
        """End a session of the current request's key. Returns whether it existed."""
        session = self.live.get((key_of_request(), session_id))
        if session is None:
            return False
        session.abort()
        return True

    def abort_all(self, caller: str | None) -> int:
        """End the sessions of a key, or all. Returns how many there were, including those that wait for their model."""
        sessions = [session for session in self.live.values() if caller in (None, session.caller)]
        for session in sessions:
            session.abort()
        return len(sessions)


class _Progress:
    """The progress of a request, to complete its events after an abort."""

    def __init__(self, choices: int) -> None:
        self._started = self._completed = False
        self._prompt_tokens = 0
        self._tokens = dict.fromkeys(range(choices), 0)
        self._done_tokens = 0

    def observe(self, item: GenerationEvent) -> None:
        match item:
            case Started() as event:
                self._started = True
                self._prompt_tokens += event.prompt_tokens
            case TextDelta() | ReasoningDelta() as event:
                self._tokens[event.index] += len(event.tokens)
            case Finished() as event:
                del self._tokens[event.index]
                self._done_tokens += event.completion_tokens
            case Completed():
                self._completed = True
            case _:
                pass

    def endings(self) -> list[GenerationEvent]:
        if self._completed:
            return []
        events: list[GenerationEvent] = [] if self._started else [Started(model="", prompt_tokens=0)]
        for index, count in self._tokens.items():
            events.append(Finished(index=index, reason="abort", completion_tokens=count))
        usage = Usage(
            prompt_tokens=self._prompt_tokens,
            completion_tokens=self._done_tokens + sum(self._tokens.values()),
        )
        return [*events, Completed(usage=usage)]


async def _next(events: Events) -> GenerationEvent | None:
    return await anext(events, None)


class Serving:
    """An unknown model is always an error. control: None if the server has no control plane."""

    def __init__(self, services: Services) -> None:
        self.control = services.control
        links = None if self.control is None else self.control.links
        self.generation = GenerationService(services.models, services.preparer, services.running, links)
        self.sessions = Sessions()
        # LMDeploy's client reads every line as JSON, so that there are no keep-alive comments.
        self.streams = msgspec.structs.replace(services.streams, ping_s=0.0)
