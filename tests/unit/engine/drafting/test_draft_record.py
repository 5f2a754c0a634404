"""How often drafts are right, as it is learnt."""

from __future__ import annotations

from jan_serve.engine.drafting.draft_record import DraftRecord


def test_a_record_learns_by_length_of_agreement() -> None:
    record = DraftRecord()
    before = record.share(3), record.share(20)
    for _ in range(20):
        record.observe(4, 5, 0)
        record.observe(30, 5, 5)
    assert record.share(3) < 0.05 < before[0]
    assert record.share(17) > 0.98 > before[1]
    assert record.share(9) == DraftRecord().share(9)
    assert record.share(None) == DraftRecord().share(None)


def test_a_share_falls_at_once_and_rises_slowly() -> None:
    record = DraftRecord()
    for _ in range(40):
        record.observe(3, 1, 1)
    high = record.share(3)
    record.observe(3, 1, 0)
    low = record.share(3)
    assert low < 0.9 * high
    for _ in range(4):
        record.observe(3, 1, 1)
    assert low < record.share(3) < high


def test_what_was_not_drafted_counts_neither_way() -> None:
    record = DraftRecord()
    record.observe(4, 0, 0)
    assert [record.share(n) for n in (None, 3, 5, 9, 17)] == [
        DraftRecord().share(n) for n in (None, 3, 5, 9, 17)
    ]


def test_a_new_one_begins_with_what_is_known_and_goes_its_own_way() -> None:
    known = DraftRecord(weight=0.5)
    known.observe(3, 1, 0)
    record = DraftRecord(like=known)
    assert record.share(3) == known.share(3) < DraftRecord().share(3)
    record.observe(3, 1, 1)
    assert record.share(3) > known.share(3)
