"""An answer that another one can go on with, or that another one began, whose events are checked first."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from jan_serve.core.models import ModelFacts
from jan_serve.core.transcript import current
from jan_serve.errors import InvalidState
from jan_serve.ipc.answer_log import AnswerLog
from jan_serve.ipc.messages import (
    Accepted,
    Chunk,
    EngineEvent,
    EngineRequest,
    PromptScored,
    RequestCompleted,
    RequestProgressed,
    SequenceFinished,
)

_MAX_DRAWS = 1 << 40


def begun_log(request: EngineRequest, facts: ModelFacts) -> AnswerLog | None:
    """The log of an answer that begins now; None for a request without a transcript. Raises InvalidState."""
    transcript = current.get()
    if transcript is None:
        return None
    past = transcript.begin(facts.weights)
    log = AnswerLog(past, transcript.add)
    if past:
        try:
            check(list(log), request, facts)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidState(f"An event of the answer cannot be read: {error}") from None
    return log


def check(events: Sequence[EngineEvent], request: EngineRequest, facts: ModelFacts) -> None:
    """Raises InvalidState for events that no engine sends for this request: a worker trusts them."""
    if not isinstance(events[0], Accepted):
        raise InvalidState("The events of the answer do not begin with its start.")
    written, finished = [0] * request.n, set[int]()
    for number, event in enumerate(events):
        match event:
            case Chunk():
                _check_index(event.index, request.n, finished)
                unknown = next((token for token in event.ids if not 0 <= token < facts.n_vocab), None)
                if unknown is not None:
                    raise InvalidState(f"The model has no token {unknown}.")
                written[event.index] += len(event.ids)
                if written[event.index] >= facts.longest_ctx:
                    raise InvalidState("The answer does not fit into the context of this server.")
                if not 0 <= event.draws < _MAX_DRAWS:
                    raise InvalidState("A number of draws is out of range.")
            case SequenceFinished():
                _check_index(event.index, request.n, finished)
                finished.add(event.index)
                if not 0 <= event.completion_tokens <= facts.longest_ctx:
                    raise InvalidState("A number of tokens is out of range.")
            case RequestCompleted():
                if number + 1 < len(events) or len(finished) < request.n:
                    raise InvalidState("The answer ends before its choices.")
            case Accepted() if number:
                raise InvalidState("The answer begins twice.")
            case Accepted() | PromptScored() | RequestProgressed():
                pass
            case _:
                raise InvalidState(f"{type(event).__name__} is no event of an answer that moves.")


def _check_index(index: int, n: int, finished: set[int]) -> None:
    if not 0 <= index < n or index in finished:
        raise InvalidState(f"The answer has no running choice {index}.")
