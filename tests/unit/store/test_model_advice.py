"""Which models of the catalogue suit a purpose and a machine."""

from __future__ import annotations

import pytest

from jan_serve.errors import InvalidRequest
from jan_serve.resources import catalogue_file
from jan_serve.store.hub.references import Catalogue, CatalogueEntry
from jan_serve.store.model_advice import (
    NUM_ADVISED,
    PURPOSES,
    Advice,
    Machine,
    advised,
    on_machine,
    purpose_named,
)
from jan_serve.store.model_memory import FreeMemory

ENTRIES = Catalogue.read(catalogue_file()).entries()
GB = 10**9


def machine(memory_gb: float, bandwidth_gb: float, *devices_gb: float) -> Machine:
    """A machine with so much free memory, less the share that is left to other programs."""
    devices = [int(size * GB) for size in devices_gb]
    return Machine(free=FreeMemory(int(memory_gb * GB), devices), cores=4, bandwidth=bandwidth_gb * GB)


def names(found: list[Advice]) -> list[str]:
    return [advice.entry.name for advice in found]


def entry(
    name: str, parameters: float, *kinds: str, active: float | None = None, since: str = "2026-01"
) -> CatalogueEntry:
    size = parameters * 0.6
    return CatalogueEntry(
        name,
        name,
        "a/b",
        "c.gguf",
        "Q4_K_M",
        kinds or ("chat", "tools"),
        parameters,
        size,
        4096,
        size + 1,
        since,
        "MIT",
        "",
        active,
    )


@pytest.mark.parametrize("purpose", PURPOSES)
@pytest.mark.parametrize("memory_gb", [1, 4, 8, 16, 32, 128])
@pytest.mark.parametrize("bandwidth_gb", [5, 20, 80, 400])
def test_advice_suits_purpose_and_memory(purpose: str, memory_gb: int, bandwidth_gb: int) -> None:
    here = machine(memory_gb, bandwidth_gb)
    found = advised(ENTRIES, PURPOSES[purpose], here)
    suited = [on_machine(one, here) for one in ENTRIES if PURPOSES[purpose].kinds <= set(one.kinds)]
    fitting = [one for one in suited if one.fits]
    assert len(found) == min(NUM_ADVISED, len(fitting) or len(suited))
    assert len(set(names(found))) == len(found)
    assert all(PURPOSES[purpose].kinds <= set(advice.entry.kinds) for advice in found)
    assert all(advice.fits for advice in found) == bool(fitting)
    assert all(advice.reason for advice in found)
    if any((one.speed or 0) >= PURPOSES[purpose].least_speed for one in fitting):
        assert (found[0].speed or 0) >= PURPOSES[purpose].least_speed


def test_the_speed_is_that_of_the_bytes_a_token_reads() -> None:
    dense, mixture = entry("dense", 10.0), entry("mixture", 30.0, active=3.0)
    here = machine(64, 60)
    slow, quick = on_machine(dense, here), on_machine(mixture, here)
    assert (slow.bytes_per_token, quick.bytes_per_token) == (6 * GB, round(1.8 * GB))
    assert slow.speed == pytest.approx(7.0)
    assert quick.speed == pytest.approx(7.0 * 10 / 3)
    assert advised([dense, mixture], PURPOSES["chat"], here)[0].entry is mixture


def test_of_models_of_one_size_the_later_one_is_recommended() -> None:
    old, new = entry("old", 4.1, since="2024-01"), entry("new", 4.0)
    assert names(advised([old, new], PURPOSES["chat"], machine(64, 100)))[0] == "new"


def test_beside_the_recommended_one_stand_a_quicker_and_a_more_able_one() -> None:
    sizes = [entry(f"m{size}", float(size)) for size in (1, 2, 4, 8, 14)]
    found = advised(sizes, PURPOSES["chat"], machine(64, 60))
    assert names(found) == ["m8", "m4", "m14"]
    assert ["quicker" in found[1].reason, "slower" in found[2].reason] == [True, True]


def test_where_none_is_quick_enough_the_quickest_comes_first() -> None:
    found = advised([entry("small", 4.0), entry("large", 8.0)], PURPOSES["agents"], machine(64, 20))
    assert names(found)[0] == "small"
    assert found[0].reason == "the quickest one that fits"


def test_a_graphics_card_that_holds_the_model_has_no_estimate_of_speed() -> None:
    here = machine(8, 10, 24)
    assert on_machine(entry("a", 14.0), here).speed is None
    assert on_machine(entry("b", 48.0), here).speed is not None
    assert names(advised([entry("a", 14.0), entry("c", 1.0)], PURPOSES["agents"], here))[0] == "a"


def test_a_model_that_writes_nothing_has_no_speed() -> None:
    found = advised(ENTRIES, PURPOSES["embeddings"], machine(16, 20))
    assert found and all(advice.speed is None for advice in found)


def test_an_unknown_purpose_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidRequest, match="for: 'poems' is none of chat, agents"):
        purpose_named("poems")
