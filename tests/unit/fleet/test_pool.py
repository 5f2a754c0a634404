"""The ring of a pool, and leaving it."""

from __future__ import annotations

from random import Random

from jan_serve.fleet.pool import Pool
from tests.unit.fleet.support import fleet_of


def test_the_ring_gives_every_proxy_the_same_order_and_moves_little() -> None:
    nodes = list(fleet_of(20))
    one, two = Pool(), Pool()
    for node in nodes:
        one.add(node)
    for node in reversed(nodes):
        two.add(node)
    rng = Random(1)
    points = [rng.getrandbits(64) for _ in range(500)]
    before = [next(one.at(point)) for point in points]
    assert before == [next(two.at(point)) for point in points]
    one.remove(nodes[3])
    after = [next(one.at(point)) for point in points]
    assert all(new is old for new, old in zip(after, before, strict=True) if old is not nodes[3])
    assert len(one) == 19
    assert nodes[3] not in one


def test_a_pool_survives_any_order_of_leaving() -> None:
    nodes = list(fleet_of(30))
    for seed in range(5):
        pool, left = Pool(), list(nodes)
        for node in nodes:
            pool.add(node)
        Random(seed).shuffle(left)
        while left:
            pool.remove(left.pop())
            assert set(pool) == set(left)
