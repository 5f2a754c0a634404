"""How often drafts are right, as it is learnt."""

from __future__ import annotations

from jan_serve.engine.drafting.draft_record import DraftRecord


def test_a_new_one_begins_with_what_is_known_and_goes_its_own_way() -> None:
    known = DraftRecord(weight=0.5)
    known.observe(3, 1, 0)
    record = DraftRecord(like=known)
    assert record.share(3) == known.share(3) < DraftRecord().share(3)
    record.observe(3, 1, 1)
    assert record.share(3) > known.share(3)
