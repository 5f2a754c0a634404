"""SequenceOutput: the events of sampled tokens, and how sequences and requests end."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from jan_serve.core.kv_transfer import StateIdentity
from jan_serve.core.request import RepetitionDetection, StopConditions
from jan_serve.engine.cache.state_transfer import StateShelf
from jan_serve.engine.repetition import RepetitionDetector
from jan_serve.engine.sampler import Sampled
from jan_serve.engine.sequence import RequestState, Sequence, SequenceStatus, SequenceText
from jan_serve.engine.sequence_output import SequenceOutput, Waits
from jan_serve.engine.stats import PhaseClock
from jan_serve.engine.tokens import TokenBuffer
from jan_serve.errors import EngineFailure, GrammarTooComplex, Overloaded
from jan_serve.ipc.messages import (
    Chunk,
    EngineRequest,
    Failed,
    RequestCompleted,
    RequestProgressed,
    SequenceFinished,
    StateKept,
)
from tests.support.clock import TurnedClock
from tests.unit.engine.fake_context import FakeContext
from tests.unit.engine.small_vocab import LETTERS, small_vocab

LOGITS = np.zeros(len(LETTERS), np.float32)


class Script:
    """A sampler that yields given letters, or raises; `forced` follow the first one."""

    draws = 0

    def __init__(self, letters: str, forced: str = "", *, is_complete: bool = False) -> None:
        self.letters = iter(letters)
        self.forced = forced
        self.is_complete = is_complete
        self.num_sampled = 0
        self.forbidden: list[tuple[int, str]] = []

    def forbid_next(self, token: int) -> None:
        self.forbidden.append((self.num_sampled, LETTERS[token]))

    def sample(self, _logits: Any) -> Sampled:
        letter = next(self.letters, None)
        if letter is None:
            raise GrammarTooComplex("no token", param="grammar")
        self.num_sampled += 1
        return Sampled(LETTERS.index(letter))

    def take_forced(self) -> list[int]:
        if not self.num_sampled:
            return []
        forced, self.forced = self.forced, ""
        return [LETTERS.index(letter) for letter in forced]


class Bench:
    """One request with `n` sequences on a fake context."""

    def __init__(
        self, sampler: Script, *, max_new: int = 8, n: int = 1, shelf: StateShelf | None = None, **fields: Any
    ) -> None:
        self.context = FakeContext()
        context: Any = self.context
        context.model.vocab = small_vocab()
        self.clock = TurnedClock()
        self.retired: list[Sequence] = []
        self.aborted: list[int] = []
        self.output = SequenceOutput(
            context,
            phase=PhaseClock(self.clock),
            waits=Waits(),
            shelf=shelf,
            retire=self._retire,
            abort=self.aborted.append,
        )
        request = EngineRequest(id=7, prompt=("a",), n=n, cache_salt="", **fields)
        state = RequestState(request, 1, arrived=0.0, unfinished=n)
        self.sequences = [self._sequence(state, index, sampler, max_new) for index in range(n)]

    def _retire(self, sequence: Sequence) -> None:
        sequence.status = SequenceStatus.FINISHED
        self.retired.append(sequence)

    @staticmethod
    def _sequence(state: RequestState, index: int, sampler: Script, max_new: int) -> Sequence:
        stopping = state.request.stopping
        detection = stopping.repetition_detection
        return Sequence(
            state=state,
            index=index,
            tokens=TokenBuffer([2]),
            sampler=cast(Any, sampler),
            text=SequenceText(stopping.stop, include_stop=False, keep_tokens=state.request.return_tokens),
            max_new=max_new,
            seed=None,
            status=SequenceStatus.RUNNING,
            repetition=None if detection is None else RepetitionDetector(detection),
            escapes=0 if detection is None else detection.escapes,
        )

    def advance(self, times: int = 1, index: int = 0) -> list[Any]:
        for _ in range(times):
            self.output.advance(self.sequences[index], LOGITS.copy())
        return self.output.take()


def finish_of(events: list[Any]) -> SequenceFinished:
    [finished] = [event for event in events if isinstance(event, SequenceFinished)]
    return finished


def text_of(events: list[Any]) -> str:
    return "".join(event.text for event in events if isinstance(event, Chunk))


def test_requested_tokens_keep_their_chunks_apart() -> None:
    events = Bench(Script("a", "b"), return_tokens=True).advance()
    assert [(event.text, [info.piece for info in event.tokens]) for event in events] == [
        ("a", [b"a"]),
        ("b", [b"b"]),
    ]


@pytest.mark.parametrize(
    ("bench", "text", "reason", "tokens", "eos"),
    [
        (Bench(Script("ab>")), "ab", "stop", 2, True),
        (Bench(Script("abcd"), max_new=2), "ab", "length", 2, False),
        (Bench(Script("abc"), stopping=StopConditions(stop=("c",))), "ab", "stop", 3, False),
        (Bench(Script("abc"), stopping=StopConditions(stop_token_ids=(4,))), "ab", "stop", 2, True),
        (Bench(Script("a", is_complete=True)), "a", "stop", 1, False),
        (Bench(Script(""), max_new=0), "", "length", 0, False),
    ],
    ids=["eos", "max_new", "stop string", "stop token", "complete grammar", "no tokens"],
)
def test_the_end_of_a_sequence(bench: Bench, text: str, reason: str, tokens: int, *, eos: bool) -> None:
    events: list[Any] = []
    while not bench.retired:
        events += bench.advance()
    finished = finish_of(events)
    assert (text_of(events), finished.reason, finished.completion_tokens, finished.eos) == (
        text,
        reason,
        tokens,
        eos,
    )
    assert isinstance(events[-1], RequestCompleted)


@pytest.mark.parametrize(("letters", "context_full"), [("abcd", True), ("a>", False)])
def test_the_end_of_the_context_is_told_from_other_limits(letters: str, *, context_full: bool) -> None:
    bench = Bench(Script(letters), max_new=2)
    bench.sequences[0].fills_context = True
    events: list[Any] = []
    while not bench.retired:
        events += bench.advance()
    assert finish_of(events).context_full is context_full
    plain = Bench(Script("abcd"), max_new=1)
    assert not finish_of(plain.advance()).context_full


def test_a_request_completes_with_its_last_sequence() -> None:
    bench = Bench(Script("a>b>"), n=2)
    first = bench.advance(2, index=0)
    assert not any(isinstance(event, RequestCompleted) for event in first)
    completed = bench.advance(2, index=1)[-1]
    assert isinstance(completed, RequestCompleted)
    assert completed.completion_tokens == 2


def test_a_report_with_the_tokens_so_far_precedes_each_piece_and_the_end() -> None:
    bench = Bench(Script("ab>", "cd"), reports_progress=True)
    bench.output.report_reading(bench.sequences[0])
    events = [*bench.output.take(), *bench.advance(), *bench.advance(), *bench.advance()]
    bench.output.report_reading(bench.sequences[0])
    assert bench.output.take() == []
    shown = [
        (event.read_tokens, event.usage.completion_tokens)
        if isinstance(event, RequestProgressed)
        else type(event).__name__
        for event in events
    ]
    # Forced tokens are one piece with the token before them.
    expected = [(0, 0), (None, 3), "Chunk", (None, 4), "Chunk", (None, 4), "SequenceFinished"]
    assert shown == [*expected, "RequestCompleted"]
    assert text_of(events) == text_of(Bench(Script("ab>", "cd")).advance(3)) == "acdb"


def test_tokens_forced_after_the_end_are_dropped() -> None:
    bench = Bench(Script("a", "b>c"))
    events = bench.advance()
    assert text_of(events) == "ab"
    assert finish_of(events).completion_tokens == 2


def test_a_time_limit_ends_a_sequence_only_after_a_line_break() -> None:
    bench = Bench(Script("abc"), stopping=StopConditions(max_decode_s=1.0))
    bench.advance()
    bench.clock.turn(2.0)
    assert not any(isinstance(event, SequenceFinished) for event in bench.advance())
    bench.sequences[0].has_line_break = True
    assert finish_of(bench.advance()).reason == "length"


def test_an_error_replaces_the_events_of_its_request() -> None:
    bench = Bench(Script("a"))
    bench.output.advance(bench.sequences[0], LOGITS.copy())
    [failed] = bench.advance()
    assert isinstance(failed, Failed)
    assert failed.code == GrammarTooComplex("", param="").code
    assert bench.aborted == [7]


def test_a_state_cannot_be_kept_without_a_shelf() -> None:
    [failed] = Bench(Script("a"), keep_state=True).advance()
    assert isinstance(failed, Failed)
    assert failed.code == EngineFailure("").code


def shelf_of(limit_bytes: int) -> StateShelf:
    return StateShelf(
        lambda: StateIdentity(model="m", type_k="f16", type_v="f16", llama_state=1), limit_bytes
    )


def test_a_state_is_kept_in_its_room() -> None:
    shelf = shelf_of(1 << 21)
    bench = Bench(Script("a"), keep_state=True, shelf=shelf)
    bench.sequences[0].num_computed = 1
    kept, _ = bench.advance()
    assert kept == StateKept(id=7, tokens=1, next_token=LETTERS.index("a"))
    assert len(shelf) == 1


def test_a_state_without_room_is_not_copied() -> None:
    shelf = shelf_of(100)
    bench = Bench(Script("a"), keep_state=True, shelf=shelf)
    [failed] = bench.advance()
    assert isinstance(failed, Failed)
    assert failed.code == Overloaded("").code
    assert bench.context.called("save") == []


@pytest.mark.parametrize(
    ("fault", "code"), [(EngineFailure("no copy"), "engine_failure"), (MemoryError(), "insufficient_memory")]
)
def test_a_copy_that_fails_costs_one_request_and_no_room(fault: Exception, code: str) -> None:
    shelf = shelf_of(1 << 21)
    bench = Bench(Script("a"), keep_state=True, shelf=shelf)
    bench.context.save_fault = fault
    [failed] = bench.advance()
    assert isinstance(failed, Failed)
    assert failed.code == code
    assert (len(shelf), bench.aborted) == (0, [7])


def thrice(*, min_tokens: int = 0, escapes: int = 0, stop: tuple[str, ...] = ()) -> StopConditions:
    detection = RepetitionDetection(max_pattern_size=3, min_count=3, escapes=escapes)
    return StopConditions(min_tokens=min_tokens, stop=stop, repetition_detection=detection)


@pytest.mark.parametrize(
    ("letters", "stopping", "text", "reason", "repetition"),
    [
        ("ababababab", thrice(), "ababab", "length", True),
        ("cabababab", thrice(), "cababab", "length", True),
        ("abcabcabcabc", thrice(), "abcabcabc", "length", True),
        ("aabbaabba", thrice(), "aabbaabba", "length", False),
        ("abababab>", thrice(stop=("babab",)), "a", "stop", False),
        ("abababab", thrice(stop=("bc",)), "ababab", "length", True),
        ("ababababab>", thrice(min_tokens=9), "ababababa", "length", True),
    ],
)
def test_a_text_that_repeats_itself_ends_there(
    letters: str, stopping: StopConditions, text: str, reason: str, repetition: bool
) -> None:
    bench = Bench(Script(letters), max_new=len(letters), stopping=stopping)
    events: list[Any] = []
    while not bench.retired:
        events += bench.advance()
    finished = finish_of(events)
    assert (text_of(events), finished.reason, finished.repetition) == (text, reason, repetition)
    assert not finished.context_full


def test_a_repetition_in_forced_tokens_ends_the_text_after_them() -> None:
    bench = Bench(Script("abc", forced="aaaab"), max_new=20, stopping=thrice())
    events = bench.advance()
    assert (text_of(events), finish_of(events).repetition) == ("aaaaab", True)


def test_the_token_that_goes_on_with_the_pattern_is_forbidden_as_often_as_wanted() -> None:
    script = Script("ab" * 3 + "c" + "ab" * 3 + "c" + "ab" * 20)
    bench = Bench(script, max_new=99, stopping=thrice(escapes=2))
    events: list[Any] = []
    while not bench.retired:
        events += bench.advance()
    assert script.forbidden == [(6, "a"), (13, "a")]
    assert text_of(events) == "abababcabababcababab"
    assert (finish_of(events).reason, finish_of(events).repetition) == ("length", True)


def test_a_choice_that_repeats_itself_ends_alone() -> None:
    bench = Bench(Script("aaabcd"), n=2, max_new=9, stopping=thrice())
    assert finish_of(bench.advance(3)).repetition
    assert [event for event in bench.advance(3, index=1) if isinstance(event, RequestCompleted)] == []
