"""Fetches the state of a sequence from a peer into a worker of this server."""

from __future__ import annotations

import logging
from typing import Final

from jan_serve.errors import InvalidState, JanServeError, Overloaded, PeerFailed
from jan_serve.ipc.messages import StoreState
from jan_serve.supervisor.kv_transfer.kept_states import StateHolder
from jan_serve.supervisor.kv_transfer.peer_connection import PeerConnection
from jan_serve.supervisor.kv_transfer.peer_messages import (
    Done,
    Fetch,
    Found,
    PeerAnswer,
    Ping,
    Question,
    Refused,
    Taken,
    decode_answer,
    encode,
)

logger = logging.getLogger(__name__)

_MAX_STATE_BYTES: Final = 1 << 40
_MAX_REASON: Final = 300


async def ping(connection: PeerConnection) -> None:
    """Raises PeerFailed unless the peer answers."""
    _expect_done(await _ask(connection, Ping()))


async def pull(connection: PeerConnection, session: int, taker: StateHolder, state: int) -> None:
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


async def _ask(connection: PeerConnection, question: Question) -> PeerAnswer:
    """The answer; raises what a refusal carries."""
    await connection.send(encode(question))
    body = await connection.receive()
    if body is None:
        raise PeerFailed("The other server closed the connection.")
    answer = decode_answer(body)
    if isinstance(answer, Refused):
        raise _refusal(answer)
    return answer


def _refusal(refused: Refused) -> JanServeError:
    """As an error of this server. Only its text is taken over: a peer is another program, of any version."""
    reason = refused.payload.get("message")
    if not isinstance(reason, str):
        return PeerFailed("The other server refused, and did not say why.")
    if len(reason) > _MAX_REASON:
        reason = f"{reason[:_MAX_REASON]}…"
    match refused.code:
        case InvalidState.code:
            return InvalidState(reason)
        case Overloaded.code:
            return Overloaded(reason)
        case _:
            return PeerFailed(f"The other server refused: {reason}")


def _expect_done(answer: PeerAnswer) -> None:
    if not isinstance(answer, Done):
        raise PeerFailed("The other server answered something else than it was asked.")
