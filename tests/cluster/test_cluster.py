"""`jan-serve cluster` on a real Ray of two machines. The tests go on from each other's cluster."""

from __future__ import annotations

import json
from pathlib import Path

from jan_serve.cluster.head import requires_token
from tests.cluster.cluster import DONE, LIMIT_S, TestedCluster, request
from tests.integration.proxy.test_two_servers import same
from tests.support.clients.raw_http import post
from tests.support.processes import wait_until
from tests.support.servers.proxied import member


def test_servers_on_two_machines_and_a_laptop_are_one_fleet(cluster: TestedCluster, tmp_path: Path) -> None:
    assert requires_token(cluster.address)
    cluster.up(min=2, max=2)
    first, second = cluster.wait_for(2)
    with member(tmp_path / "laptop", cluster.proxy) as laptop:
        cluster.wait_for(3)
        alone = post(laptop.url(), "/v1/chat/completions", request(seed=1))
        for url in (first, second, cluster.proxy):
            assert same(post(url, "/v1/chat/completions", request(seed=1)).body) == same(alone.body)
    wait_until(lambda: cluster.urls() == {first, second}, 60)


def test_all_servers_are_replaced_under_load_without_a_failed_request(cluster: TestedCluster) -> None:
    before = cluster.wait_for(2)
    with cluster.load(clients=3, pause_s=0.2) as load, cluster.stream(600) as long:
        cluster.up("n_ctx = 2048", min=2, max=2)
        after = cluster.wait_for(2)
        wait_until(lambda: {f"http://{node}" for node in load.answered[-20:]} <= after, 60)
        assert DONE in long.end()
    assert not before & after
    assert load.failed == []
    assert len(load.answered) > 20
    assert {f"http://{node}" for node in load.answered} & before


def test_a_killed_replica_is_back_by_itself(cluster: TestedCluster) -> None:
    first, second = sorted(cluster.wait_for(2))
    server = cluster.server_of(first)
    actor = server.parent()
    assert actor is not None and "Replica" in actor.name() + " ".join(actor.cmdline())
    with cluster.load(clients=3, pause_s=0.2) as load:
        actor.kill()
        wait_until(lambda: len(cluster.urls() - {first}) == 2, LIMIT_S)
    assert second in cluster.urls()
    assert load.failed == []  # its server finishes what it has


def test_a_killed_server_is_back_by_itself(cluster: TestedCluster) -> None:
    first, second = sorted(cluster.wait_for(2))
    cluster.server_of(first).kill()
    wait_until(lambda: len(cluster.urls() - {first}) == 2, LIMIT_S)
    assert second in cluster.urls()
    assert cluster.ask().status == 200


def test_a_lost_machine_is_made_up_for_by_the_next_one(cluster: TestedCluster) -> None:
    cluster.wait_for(2)
    cluster.machine("lose")
    cluster.wait_for(1)
    assert cluster.ask().status == 200
    cluster.machine("add")
    cluster.wait_for(2)


def test_the_number_follows_open_requests_and_no_stream_is_cut(cluster: TestedCluster) -> None:
    cluster.up("n_ctx = 8192", min=1, max=2, slots=3, grow_s=1, shrink_s=1, drain_s=600)
    cluster.wait_for(1)
    with cluster.load(clients=4, pause_s=0) as load:
        first, second = cluster.wait_for(2)
        with cluster.stream(7000, first) as one, cluster.stream(7000, second) as other:
            load.stop.set()
            cluster.wait_for(1)
            assert DONE in one.end()
            assert DONE in other.end()
    assert load.failed == []
    assert cluster.ask().status == 200


def test_status_shows_machines_and_nodes(cluster: TestedCluster) -> None:
    (url,) = cluster.wait_for(1)
    shown = json.loads(cluster.command("status", "--json"))
    assert sum(machine["alive"] for machine in shown["machines"]) == 2
    assert [node["url"] for node in shown["nodes"] if node["routable"]] == [url]
    assert url.removeprefix("http://") in cluster.command("status")


def test_down_ends_the_servers_and_leaves_what_up_did_not_start(cluster: TestedCluster) -> None:
    cluster.wait_for(1)
    cluster.command("down")
    assert cluster.urls() == set()
    cluster.machine("lose")  # Ray still runs, and answers
