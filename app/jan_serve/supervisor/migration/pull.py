"""Fetches the state of a sequence from a peer into a worker of this server."""

from __future__ import annotations

import logging
from typing import Protocol

from jan_serve.errors import JanServeError, PeerFailed, error_from_payload
from jan_serve.ipc.messages import StateStored, StoreState
from jan_serve.supervisor.migration.connection import PeerConnection
from jan_serve.supervisor.migration.messages import (
    Answer,
    Done,
    Fetch,
    Found,
    Ping,
    Question,
    Refused,
    Taken,
    decode_answer,
    encode,
)

logger = logging.getLogger(__name__)

_MAX_STATE_BYTES = 1 << 40


class StateTaker(Protocol):
    """The worker that goes on; see supervisor.engine_client."""

    def next_id(self) -> int: ...
    async def store_state(self, request: StoreState) -> StateStored: ...


async def ping(connection: PeerConnection) -> None:
    """Raises PeerFailed unless the peer answers."""
    _expect_done(await _ask(connection, Ping()))


async def pull(connection: PeerConnection, session: int, taker: StateTaker, state: int) -> None:
    """Bring what the peer keeps of a session to a worker, where it becomes `state`. The peer then forgets it.

    Raises PeerFailed, InvalidState, Overloaded, and what the worker raises; it may have a part of it then.
    """
    found = await _ask(connection, Fetch(session))
    if not isinstance(found, Found) or not 0 < found.total <= _MAX_STATE_BYTES:
        raise PeerFailed("The other server did not say how large its cache is.")
    received = 0
    while received < found.total:
        data = await connection.receive()
        if not data:
            raise PeerFailed("The other server broke off in the middle of its cache.")
        # The worker checks the whole with the last part.
        part = StoreState(id=taker.next_id(), state=state, offset=received, total=found.total, data=data)
        received = (await taker.store_state(part)).received
    try:
        _expect_done(await _ask(connection, Taken(session)))
    except JanServeError as error:
        # It is here, which is what counts. There it is dropped after a while.
        logger.warning("a peer was not told that session %d was taken: %s", session, error.message)


async def _ask(connection: PeerConnection, question: Question) -> Answer:
    """The answer; raises what a refusal carries."""
    await connection.send(encode(question))
    body = await connection.receive()
    if body is None:
        raise PeerFailed("The other server closed the connection.")
    answer = decode_answer(body)
    if isinstance(answer, Refused):
        raise error_from_payload(answer.code, answer.payload)
    return answer


def _expect_done(answer: Answer) -> None:
    if not isinstance(answer, Done):
        raise PeerFailed("The other server answered something else than it was asked.")
