"""Fetches a sequence state from a peer into a worker of this server."""

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
    PeerRequest,
    Ping,
    Refused,
    Release,
    decode_answer,
    encode,
)

logger = logging.getLogger(__name__)

_MAX_STATE_BYTES: Final = 1 << 40
_MAX_REASON: Final = 300


async def ping(connection: PeerConnection) -> None:
    """Raises PeerFailed unless the peer answers."""
    _expect_done(await _request(connection, Ping()))


async def pull(connection: PeerConnection, session: int, taker: StateHolder, state: int) -> None:
    """Copy the peer's state of a session into a worker, as its `state`. The peer then drops its own.

    Raises PeerFailed, InvalidState, Overloaded, and the worker's errors; the worker may then hold a part of the state.
    """
    found = await _request(connection, Fetch(session))
    if not isinstance(found, Found) or not 0 < found.total <= _MAX_STATE_BYTES:
        raise PeerFailed("The other server did not say how large its cache is.")
    received = 0
    while received < found.total:
        data = await connection.receive()
        if not data:
            raise PeerFailed("The other server broke off in the middle of its cache.")
        # With the last part, the worker checks the whole state.
        part = StoreState(id=taker.next_id(), state=state, offset=received, total=found.total, data=data)
        received = (await taker.store_state(part)).received
    try:
        _expect_done(await _request(connection, Release(session)))
    except JanServeError as error:
        # The state has arrived. The peer drops its own when it expires.
        logger.warning("cannot release session %d at a peer: %s", session, error.message)


async def _request(connection: PeerConnection, request: PeerRequest) -> PeerAnswer:
    """The answer; raises the error of a refusal."""
    await connection.send(encode(request))
    body = await connection.receive()
    if body is None:
        raise PeerFailed("The other server closed the connection.")
    answer = decode_answer(body)
    if isinstance(answer, Refused):
        raise _refusal(answer)
    return answer


def _refusal(refused: Refused) -> JanServeError:
    """The error for this server's client. Only the text is the peer's: it is another program, of any version."""
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
