"""Who may be in memory, who goes and who is refused, as a table."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from jan_serve.errors import InsufficientMemory, Unavailable
from jan_serve.store.model_memory import Footprint, FreeMemory
from jan_serve.supervisor.models.eviction import (
    CannotFit,
    Decision,
    Evict,
    Excluded,
    Load,
    MemoryUse,
    Occupant,
    Room,
    Wait,
    free_for_models,
    load_error,
    plan_load,
    unload_due_s,
)

A, B, C = (
    Occupant("a", last_used=1, memory=10),
    Occupant("b", last_used=2, memory=10),
    Occupant("c", last_used=3, memory=10),
)
BUSY = Occupant("busy", leases=1, last_used=0, memory=10)
PINNED = Occupant("pinned", last_used=0, memory=10, pinned=True)
LEAVING = Occupant("leaving", last_used=0, memory=10, leaving=True)


class Wanted(NamedTuple):
    """A model that requests wait for, with the bytes of its footprint."""

    name: str
    least: int = 0
    total: int = 0
    on_device: int = 0
    group: str | None = None


NEW = Wanted("new", least=8, total=10)

CASES: list[tuple[str, Wanted, list[Occupant], Room, Decision]] = [
    ("an empty machine", NEW, [], Room(10), Load()),
    ("memory is not looked at", NEW, [A, B], Room(None), Load()),
    ("there is room beside others", NEW, [A, B], Room(10), Load()),
    ("the least recently used goes", NEW, [C, A, B], Room(0), Evict(("a",))),
    ("as many as it takes", Wanted("new", 8, 15), [A, B, C], Room(0), Evict(("a", "b"))),
    ("a small one of no use stays", NEW, [Occupant("tiny", last_used=0, memory=1), A], Room(0), Evict(("a",))),
    ("an idle one goes for the whole context", NEW, [A], Room(8), Evict(("a",))),
    ("only the least where no more can be had", NEW, [BUSY], Room(8), Load()),
    ("idle ones go for the least too", NEW, [BUSY, Occupant("s", last_used=1, memory=1)], Room(7), Evict(("s",))),
    ("a leased one is waited for", NEW, [BUSY], Room(0), Wait(("busy",))),
    ("a leased one is not waited for while an idle one will do", NEW, [BUSY, A], Room(0), Evict(("a",))),
    ("as many idle ones as are needed", Wanted("new", 20, 20), [BUSY, A, B], Room(0), Evict(("a", "b"))),
    ("idle and leased ones together", Wanted("new", 30, 30), [BUSY, A, B], Room(0), Wait(("a", "b", "busy"))),
    ("memory that comes back is waited for", NEW, [LEAVING, A], Room(0), Wait(())),
    ("one that leaves need not be waited for", NEW, [LEAVING], Room(10), Load()),
    ("too large whatever goes", Wanted("new", 31, 40), [A, B, BUSY], Room(0), CannotFit(31, 30, ())),
    ("too large beside what stays", Wanted("new", 11, 11), [A, PINNED], Room(0), CannotFit(11, 10, ("pinned",))),
    ("too large for the machine", NEW, [], Room(7), CannotFit(8, 7, ())),
    ("a pinned one is not evicted", NEW, [PINNED, A], Room(0), Evict(("a",))),
    ("a full house of idle models", NEW, [A, B], Room(None, max_loaded=2), Evict(("a",))),
    ("a full house of leased models", NEW, [BUSY], Room(None, max_loaded=1), Wait(("busy",))),
    ("a full house of pinned models", NEW, [PINNED], Room(None, max_loaded=1), Excluded(("pinned",))),
    ("one that leaves still has its place", NEW, [LEAVING], Room(None, max_loaded=1), Wait(())),
    ("an older file of the same name", Wanted("a"), [A], Room(100), Evict(("a",))),
    ("an older file that is in use", Wanted("busy"), [BUSY], Room(100), Wait(("busy",))),
    ("an older file that is pinned", Wanted("pinned"), [PINNED], Room(100), Evict(("pinned",))),
    ("its group is taken", Wanted("new", group="g"), [Occupant("x", group="g"), A], Room(100), Evict(("x",))),
    (
        "its group is in use",
        Wanted("new", group="g"),
        [Occupant("x", leases=1, group="g")],
        Room(100),
        Wait(("x",)),
    ),
    (
        "its group is pinned",
        Wanted("new", group="g"),
        [Occupant("x", pinned=True, group="g")],
        Room(100),
        Excluded(("x",)),
    ),
    ("another group", Wanted("new", group="g"), [Occupant("x", group="h")], Room(100), Load()),
    ("room on the device", Wanted("new", 8, 8, on_device=5), [], Room(10, free_on_device=5), Load()),
    (
        "none on the device until somebody goes",
        Wanted("new", 8, 8, on_device=5),
        [Occupant("cpu", last_used=0, memory=9), Occupant("gpu", last_used=1, memory=9, memory_on_device=9)],
        Room(10, free_on_device=1),
        Evict(("gpu",)),
    ),
    (
        "too large for the device",
        Wanted("new", 8, 8, on_device=5),
        [A],
        Room(10, free_on_device=4),
        CannotFit(5, 4, (), on_device=True),
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("left_s", "leases", "is_awaited", "due_s"),
    [
        (0.0, 0, False, 0.0),
        (3.0, 0, False, 3.0),
        (0.0, 1, False, None),
        (0.0, 0, True, None),
        (None, 0, False, None),
    ],
)
def test_an_idle_model_is_unloaded_when_no_request_has_it_or_waits(
    left_s: float | None, leases: int, is_awaited: bool, due_s: float | None
) -> None:
    assert unload_due_s(left_s, leases=leases, is_awaited=is_awaited) == due_s


@pytest.mark.parametrize(
    ("wanted", "occupants", "room", "expected"),
    [case[1:] for case in CASES],
    ids=[case[0] for case in CASES],
)
def test_a_decision(wanted: Wanted, occupants: list[Occupant], room: Room, expected: Decision) -> None:
    size = Footprint(0, wanted.total, wanted.least, 0, wanted.on_device)
    assert plan_load(wanted.name, size, wanted.group, occupants, room) == expected


@pytest.mark.parametrize(
    ("used", "budget", "expected"),
    [
        ([], None, 90),
        ([], 50, 50),
        ([MemoryUse(total=30, unseen=20)], None, 70),
        ([MemoryUse(total=30, unseen=20)], 50, 20),
        ([MemoryUse(total=40, unseen=40)], 1000, 50),
        ([MemoryUse(total=400, unseen=400)], None, 0),
        ([MemoryUse(total=60)], 50, 0),
    ],
    ids=["all but a tenth", "a budget", "mapped weights", "both", "a load under way", "never negative", "over"],
)  # fmt: skip
def test_memory_for_a_new_model(used: list[MemoryUse], budget: int | None, expected: int) -> None:
    assert free_for_models(FreeMemory(main=100), used, budget) == expected


def test_accelerators_count_with_main_memory() -> None:
    assert free_for_models(FreeMemory(main=100, accelerators=[50, 10]), [], None) == 150


GB = 1_000_000_000
SIZE = Footprint(weights=5 * GB, context=3 * GB, least_context=GB, working=GB // 2)


@pytest.mark.parametrize(
    ("reason", "others", "budget", "says", "omits"),
    [
        (CannotFit(6 * GB, 4 * GB, ()), (), None,
         ["about 6.50 GB", "5.00 GB for its weights, 1.00 GB for its context", "0.50 GB to work with",
          "4.00 GB can be had.", "close other programs."], ["beside", "without", "memory_budget"]),
        (CannotFit(6 * GB, 4 * GB, ()), ("b", "c"), 3 * GB,
         ["4.00 GB can be had, even without `b`, `c`.", "a memory_budget above 3.00 GB."], ["close other"]),
        (CannotFit(6 * GB, 4 * GB, ("p",)), ("p", "b"), None,
         ["4.00 GB can be had beside `p`, which stays in memory (pin)."], ["even without"]),
        (CannotFit(6 * GB, 4 * GB, tuple("vwxyz")), (), None, ["beside `v`, `w`, `x` and 2 more, which stay"], ["`y`"]),
        (CannotFit(6 * GB, 4 * GB, (), on_device=True), ("b",), None,
         ["6.00 GB on the accelerators", "(n_gpu_layers), and 4.00 GB can be had"], ["weights", "`b`"]),
    ],
)  # fmt: skip
def test_a_model_that_does_not_fit(
    reason: CannotFit, others: tuple[str, ...], budget: int | None, says: list[str], omits: list[str]
) -> None:
    if not reason.on_device:
        reason = CannotFit(SIZE.least, reason.available, reason.pinned)
    error = load_error("m", SIZE, reason, others, budget)
    assert isinstance(error, InsufficientMemory)
    assert (error.needed_bytes, error.available_bytes) == (reason.needed, reason.available)
    assert (error.param, error.retry_after) == ("model", None)
    assert error.message.startswith("The model `m` needs about ")
    assert [part for part in says if part not in error.message] == []
    assert [part for part in omits if part in error.message] == []


@pytest.mark.parametrize(
    ("pinned", "text"),
    [
        (("p",), "The model `m` cannot be loaded beside `p`, which stays in memory (pin). Unload it first."),
        (
            ("p", "q"),
            "The model `m` cannot be loaded beside `p`, `q`, which stay in memory (pin). Unload them first.",
        ),
    ],
)
def test_a_model_that_pinned_ones_exclude(pinned: tuple[str, ...], text: str) -> None:
    error = load_error("m", SIZE, Excluded(pinned), ())
    assert isinstance(error, Unavailable) and not isinstance(error, InsufficientMemory)
    assert error.message == text
