"""KV transfer of one request: its prompt was computed by another server, or is kept for another one."""

from __future__ import annotations

import msgspec

from jan_serve.core.events import StatePreserved
from jan_serve.core.request import GenerationRequest
from jan_serve.errors import UnsupportedOperation
from jan_serve.generation.ports import EngineClient, SequenceStates
from jan_serve.ipc.messages import EngineRequest, ResumeState, StateKept


class KvTransfer:
    """The sequence states of one request. `close` drops those that no one took over."""

    def __init__(
        self, request: GenerationRequest, client: EngineClient, states: SequenceStates | None
    ) -> None:
        """states: None if this service knows no other servers."""
        self._request = request
        self._client = client
        self._states = states
        self._to_drop: set[int] = set()

    async def submitted(self, prepared: EngineRequest) -> EngineRequest:
        """The request for the worker, once the state that it resumes is there.

        Raises UnsupportedOperation, InvalidRequest, PeerFailed, Overloaded.
        """
        if not self._request.keep_state and self._request.resume is None:
            return prepared
        states = self._other_servers()
        resume: ResumeState | None = None
        if self._request.resume is not None:
            state = self._client.next_id()
            self._to_drop.add(state)
            await states.fetch(self._request.resume, self._client, state)
            resume = ResumeState(state, self._request.resume.next_token)
        if self._request.keep_state:
            self._to_drop.add(prepared.id)
        return msgspec.structs.replace(prepared, keep_state=self._request.keep_state, resume=resume)

    def kept(self, event: StateKept) -> StatePreserved:
        """The worker keeps the state; from now on SequenceStates owns it."""
        handle = self._other_servers().keep(self._client, event.id)
        self._to_drop.discard(event.id)
        return StatePreserved(handle=handle, tokens=event.tokens, next_token=event.next_token)

    def close(self) -> None:
        for state in self._to_drop:
            self._client.drop_state(state)

    def _other_servers(self) -> SequenceStates:
        if self._states is None:
            raise UnsupportedOperation("This route does not work with other servers.")
        return self._states
