"""Events of an answer that another server began are checked: a worker trusts them."""

from __future__ import annotations

import msgspec
import pytest

from jan_serve.core.events import Timings
from jan_serve.core.request import SamplingParams, StopConditions
from jan_serve.errors import InvalidState
from jan_serve.generation.transcripts import check
from jan_serve.ipc.messages import (
    Accepted,
    Chunk,
    EngineEvent,
    EngineRequest,
    Pong,
    RequestCompleted,
    SequenceFinished,
)
from tests.support.engine.fake_client import fake_facts

FACTS = fake_facts(n_ctx=8, n_vocab=10)
REQUEST = EngineRequest(
    id=1, prompt=("a",), sampling=SamplingParams(), stopping=StopConditions(), n=2, cache_salt=""
)
STARTED = Accepted(1, 1)
TEXT = Chunk(0, "a", id=1, ids=(9,), draws=1)
FINISHED = tuple(SequenceFinished(index=index, reason="stop", completion_tokens=1, id=1) for index in (0, 1))
COMPLETED = RequestCompleted(id=1, prompt_tokens=1, completion_tokens=2, cached_tokens=0, timings=Timings())
LONG = msgspec.structs.replace(TEXT, ids=(9,) * 4)


@pytest.mark.parametrize(
    "events", [(STARTED,), (STARTED, TEXT, FINISHED[1], TEXT), (STARTED, TEXT, *FINISHED, COMPLETED)]
)
def test_what_an_engine_sends_is_accepted(events: tuple[EngineEvent, ...]) -> None:
    check(events, REQUEST, FACTS)


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ((TEXT,), "do not begin with its start"),
        ((STARTED, STARTED), "begins twice"),
        ((STARTED, msgspec.structs.replace(TEXT, index=2)), "no running choice 2"),
        ((STARTED, msgspec.structs.replace(TEXT, index=-1)), "no running choice -1"),
        ((STARTED, FINISHED[0], TEXT), "no running choice 0"),
        ((STARTED, FINISHED[0], FINISHED[0]), "no running choice 0"),
        ((STARTED, msgspec.structs.replace(TEXT, ids=(9, 10))), "no token 10"),
        ((STARTED, msgspec.structs.replace(TEXT, ids=(-1,))), "no token -1"),
        ((STARTED, LONG, LONG), "does not fit"),
        ((STARTED, msgspec.structs.replace(TEXT, draws=-1)), "draws is out of range"),
        ((STARTED, msgspec.structs.replace(TEXT, draws=1 << 40)), "draws is out of range"),
        ((STARTED, msgspec.structs.replace(FINISHED[0], completion_tokens=9)), "tokens is out of range"),
        ((STARTED, FINISHED[0], COMPLETED), "ends before its choices"),
        ((STARTED, *FINISHED, COMPLETED, COMPLETED), "ends before its choices"),
        ((STARTED, Pong(nonce=1, phase="idle", phase_s=0.0)), "Pong is no event"),
    ],
)
def test_what_no_engine_sends_is_refused(events: tuple[EngineEvent, ...], words: str) -> None:
    with pytest.raises(InvalidState, match=words):
        check(events, REQUEST, FACTS)
