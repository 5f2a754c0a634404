"""Drafter: who gets a draft, how long it may be, and what is learnt from others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jan_serve.engine.drafting.draft_model import DraftModel
from jan_serve.engine.drafting.drafter import Drafter, GraphPadding
from jan_serve.engine.scheduling.step_costs import StepCosts
from jan_serve.engine.sequence import Draft, Sequence, SequenceStatus
from jan_serve.engine.tokens import PrefixMark, Tokens
from jan_serve.ipc.messages import DraftMode
from tests.unit.engine.fake_context import sequence_of

REPEATED = [*range(100, 130), *range(100, 115)]
NEXT = list(range(115, 130))
"""What came after the same tokens before."""


class FakeModel(DraftModel):
    """Always goes on with 7, or drafts nothing."""

    def __init__(self, *, drafts: bool = True) -> None:
        self.forgotten: list[Sequence] = []
        self.drafts = drafts

    @property
    def token_s(self) -> float:
        return 0.001

    def begin_step(self) -> None:
        pass

    def draft(self, sequence: Sequence, length: int) -> Tokens | None:
        return np.full(length, 7, np.int32) if self.drafts else None

    def forget(self, sequence: Sequence) -> None:
        self.forgotten.append(sequence)


def drafter_of(mode: DraftMode = "on", model: DraftModel | None = None, longest: int = 4096) -> Drafter:
    unmeasured: Any = None  # only `auto` asks what steps cost
    return Drafter(unmeasured, mode, model, longest=longest)


def running(tokens: list[int], max_new: int = 100) -> Sequence:
    sequence = sequence_of(np.array(tokens, np.int32))
    sequence.max_new = max_new
    return sequence


def drafts(
    drafter: Drafter, *sequences: Sequence | None, num_tokens: int = 1, room: int = 64
) -> list[list[int] | None]:
    found = drafter.drafts(sequences, num_tokens, room)
    return [None if draft is None else draft.tokens.tolist() for draft in found]


@pytest.mark.parametrize(
    ("longest", "max_new", "room", "num_tokens", "length"),
    [
        (4096, 100, 3, 1, 3),
        (4096, 100, 64, 60, 4),
        (4096, 100, 64, 64, 0),
        (4096, 3, 64, 1, 2),  # the last one is sampled
        (4096, 1, 64, 1, 0),
        (len(REPEATED) + 2, 100, 64, 1, 2),
        (len(REPEATED), 100, 64, 1, 0),
    ],
)
def test_a_draft_ends_with_the_room_and_with_the_answer(
    longest: int, max_new: int, room: int, num_tokens: int, length: int
) -> None:
    [draft] = drafts(
        drafter_of(longest=longest), running(REPEATED, max_new), num_tokens=num_tokens, room=room
    )
    assert (draft or []) == NEXT[:length]


def test_streams_share_the_room() -> None:
    found = drafts(drafter_of(), running(REPEATED), running(REPEATED), None, room=9)
    assert found == [NEXT[:5], NEXT[:4], None]
    many = drafts(drafter_of(), *(running(REPEATED) for _ in range(33)), num_tokens=33)
    assert [len(draft or []) for draft in many] == [1] * 31 + [0] * 2


def test_many_streams_are_drafted_for_only_where_that_is_asked_for() -> None:
    many = [running(REPEATED) for _ in range(17)]
    model = FakeModel()
    assert set(map(str, drafts(drafter_of("auto", model), *many))) == {"None"}
    assert any(drafts(drafter_of("on"), *many))


def test_a_finished_sequence_is_looked_up_for_others_and_a_preempted_one_is_not() -> None:
    for is_remembered in (True, False):
        drafter, model = drafter_of(), FakeModel()
        finished = running(list(range(100, 130)))
        drafts(drafter, finished)
        (drafter.remember if is_remembered else drafter.forget)(finished)
        [draft] = drafts(drafter, running(list(range(100, 115))))
        assert (draft or [])[:5] == (NEXT[:5] if is_remembered else [])
        assert model.forgotten == []


def test_a_finished_sequence_of_another_key_is_not_looked_up() -> None:
    for other, expected in (("key 1", NEXT[:5]), ("key 2", [])):
        drafter = drafter_of()
        finished, asked = running(list(range(100, 130))), running(list(range(100, 115)))
        finished.mark, asked.mark = PrefixMark.of("key 1"), PrefixMark.of(other)
        drafts(drafter, finished)
        drafter.remember(finished)
        [draft] = drafts(drafter, asked)
        assert (draft or [])[:5] == expected


def test_the_model_drafts_what_the_look_up_does_not_find() -> None:
    model = FakeModel()
    drafter = drafter_of("on", model)
    sequence = running(list(range(50)))
    found = drafts(drafter, sequence, running(REPEATED), room=8)
    assert found == [[7] * 4, NEXT[:4]]
    drafter.forget(sequence)
    assert model.forgotten == [sequence]


def test_accepted_tokens_are_counted() -> None:
    """Those that only fill a step do not count, even if they are right."""
    drafter, sequence = drafter_of(), running(REPEATED)
    tokens = np.array(NEXT[:5], np.int32)
    drafter.observe_draft(sequence, Draft(tokens, 5, 17), 2)
    drafter.observe_draft(sequence, Draft(tokens, 3, 17), 4)
    drafter.observe_draft(sequence, Draft(tokens, 0), 1)
    assert (drafter.drafted, drafter.accepted) == (8, 5)


def test_the_last_draft_of_an_answer_counts() -> None:
    drafter, sequence = drafter_of("on", FakeHead()), running(list(range(50)))
    [draft] = drafter.drafts([sequence], 1, 64)
    assert draft is not None
    sequence.status = SequenceStatus.FINISHED
    drafter.remember(sequence)
    drafter.observe_draft(sequence, draft, 3)
    assert (drafter.drafted_by_model, drafter.accepted_by_model) == (4, 3)


class FakeHead(FakeModel):
    max_draft = 4


def test_a_model_is_asked_where_a_short_match_promises_less() -> None:
    """A match of three tokens is right about one time in three, and costs nothing."""
    short = [1, 2, 3, 4, 5, 6, 1, 2, 3]
    assert drafts(drafter_of("on", FakeHead()), running(short)) == [[7] * 4]
    assert drafts(drafter_of("on"), running(short)) == [[4, 5, 6, 1, 2, 3]]
    [long] = drafts(drafter_of("on", FakeHead()), running(REPEATED))
    assert long and long[0] == NEXT[0]


def test_where_the_model_drafts_nothing_the_short_match_is_taken() -> None:
    short = [1, 2, 3, 4, 5, 6, 1, 2, 3]
    assert drafts(drafter_of("on", FakeHead(drafts=False)), running(short)) == [[4, 5, 6, 1]]


def test_a_head_that_is_on_drafts_without_a_measurement_and_off_never() -> None:
    unmeasured: Any = None
    cases: list[tuple[DraftMode, list[list[int] | None]]] = [("on", [[7] * 4]), ("off", [None])]
    for mode, expected in cases:
        drafter = Drafter(unmeasured, "off", FakeHead(), longest=4096, model_mode=mode)
        assert drafts(drafter, running(list(range(50)))) == expected


def test_a_head_that_is_on_leaves_no_stream_without_a_draft() -> None:
    """Also one whose look-up promises more, while look-ups are measured."""
    unmeasured: Any = None
    drafter = Drafter(unmeasured, "auto", FakeHead(), longest=4096, model_mode="on")
    looked_up, by_head = drafts(drafter, running(REPEATED), running(list(range(50))))
    assert looked_up and looked_up[0] == NEXT[0]
    assert by_head == [7] * 4


def test_drafts_of_a_model_are_counted_by_themselves() -> None:
    drafter = drafter_of("on", FakeHead())
    for tokens in (list(range(50)), REPEATED):
        sequence = running(tokens)
        [draft] = drafter.drafts([sequence], 1, 64)
        assert draft is not None
        drafter.observe_draft(sequence, draft, 3)
    assert (drafter.drafted_by_model, drafter.accepted_by_model, drafter.accepted) == (4, 3, 6)


def costs_of(*, change: float) -> StepCosts:
    """One row takes 1 s and four 1.25 s, the first two steps of a size `change` times more. The latest had four."""
    costs = StepCosts()
    for _ in range(5):
        for rows, seconds in ((1, 1.0), (4, 1.25)):
            for number in range(4):
                costs.observe(rows, 0, seconds * (1.0 + change * (number < 2)))
    return costs


def kept(padding: GraphPadding, steps: int) -> list[int]:
    return [padding.rows(1) for _ in range(steps)]


def test_a_size_is_kept_for_as_long_as_drafts_have_repaid_it() -> None:
    padding = GraphPadding(costs_of(change=2.0))
    assert kept(padding, 1) == [1], "nothing is gained yet"
    padding.accept(1)
    assert kept(padding, 5) == [4, 4, 4, 1, 1]
