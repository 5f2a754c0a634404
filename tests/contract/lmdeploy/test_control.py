"""LMDeploy's control plane and its disaggregated serving as bytes, over fakes."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from tests.contract.lmdeploy.support import keeping
from tests.support.engine.fake_client import FakeClient, FakeModels
from tests.support.engine.fake_control import FakeControl, controlled_client

pytestmark = pytest.mark.anyio

PREFIXES = pytest.mark.parametrize("prefix", ["", "/lmdeploy"])
CONFIG = {
    "tp_size": 1,
    "ep_size": 1,
    "dp_size": 1,
    "pp_size": None,
    "dp_rank": 0,
    "block_size": 64,
    "num_cpu_blocks": 0,
    "num_gpu_blocks": 8,
}
GGUF = base64.b64encode(b"GGUF and more").decode()


def initialize(**changes: Any) -> dict[str, Any]:
    return {
        "protocol": 2,
        "local_engine_id": "http://127.0.0.1:1",
        "local_engine_config": CONFIG,
        "remote_engine_id": "http://127.0.0.1:2",
        "remote_engine_config": CONFIG,
        "rank": 0,
        "rdma_config": {"with_gdr": True, "link_type": 1},
        **changes,
    }


def flat(message: str, status: int = 400) -> dict[str, Any]:
    return {
        "message": message,
        "type": "invalid_request_error",
        "code": status,
        "param": None,
        "object": "error",
    }


@PREFIXES
async def test_engine_info_is_json_in_json(prefix: str) -> None:
    async with controlled_client(FakeControl()) as client:
        response = await client.get(f"{prefix}/distserve/engine_info")
        assert json.loads(response.json()) == CONFIG
        assert response.text.startswith('"{\\"tp_size\\":1,')


@PREFIXES
async def test_two_servers_are_linked_and_parted(prefix: str) -> None:
    one, two = FakeControl(), FakeControl()
    async with controlled_client(one) as first, controlled_client(two) as second:
        path = f"{prefix}/distserve"
        offered = (await first.post(f"{path}/p2p_initialize", json=initialize())).json()
        port = int(offered["engine_endpoint_info"]["zmq_address"].removeprefix("tcp://127.0.0.1:"))
        (endpoint,) = offered["kvtransfer_endpoint_info"]
        assert (offered["status"], endpoint["protocol"]) == (1, 1)
        assert json.loads(endpoint["endpoint_info"])["port"] == port
        swapped = initialize(
            local_engine_id="http://127.0.0.1:2", remote_engine_id="http://127.0.0.1:1", protocol=1
        )
        await second.post(f"{path}/p2p_initialize", json=swapped)
        connect: dict[str, Any] = {
            "protocol": 1,
            "remote_engine_id": "http://127.0.0.1:1",
            "remote_engine_endpoint_info": offered["engine_endpoint_info"],
            "remote_kvtransfer_endpoint_info": offered["kvtransfer_endpoint_info"],
        }
        assert (await second.post(f"{path}/p2p_connect", json=connect)).json() == {"status": 1}
        gone = {"engine_id": "http://127.0.0.1:1", "remote_engine_id": "http://127.0.0.1:2"}
        for _ in range(2):
            assert (await first.post(f"{path}/p2p_drop_connect", json=gone)).json() == {"success": True}
        failed = (await second.post(f"{path}/p2p_connect", json=connect)).json()
        assert failed["status"] == 2 and "does not know the key" in failed["message"]


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("p2p_initialize", initialize(remote_engine_config={**CONFIG, "tp_size": 2}), "tp_size: must be 1"),
        ("p2p_initialize", initialize(remote_engine_id=""), "1 to 1024 bytes"),
        ("p2p_initialize", initialize(local_engine_id="x" * 1025), "1 to 1024 bytes"),
    ],
)
async def test_what_cannot_be_linked_is_refused(path: str, body: dict[str, Any], words: str) -> None:
    async with controlled_client(FakeControl()) as client:
        response = await client.post(f"/distserve/{path}", json=body)
        assert response.status_code == 400 and words in response.json()["message"]


async def test_free_cache_succeeds_for_unknown_sessions() -> None:
    async with controlled_client(FakeControl()) as client:
        body = {"remote_engine_id": "http://x", "remote_session_id": 99}
        response = await client.post("/distserve/free_cache", json=body)
        assert response.text == '{"status":"SUCCESS"}'


GENERATIONS = pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/generate", {"prompt": "x"}),
        ("/v1/completions", {"model": "fake", "prompt": "x"}),
        ("/v1/chat/completions", {"model": "fake", "messages": [{"role": "user", "content": "x"}]}),
    ],
)


@GENERATIONS
async def test_a_prefill_reports_its_kept_state_until_it_is_freed(path: str, body: dict[str, Any]) -> None:
    client = FakeClient(script=keeping)
    control = FakeControl()
    async with controlled_client(control, FakeModels(client)) as http:
        asked = {**body, "max_tokens": 1, "with_cache": True, "preserve_cache": True}
        client.states[1] = b"state"
        reply = (await http.post(f"/lmdeploy{path}", json=asked)).json()
        assert reply["cache_block_ids"] == [0, 1, 2]
        assert reply["remote_token_ids"] == [65]
        assert control.links.is_kept("", int(reply["id"]))
        await http.post(
            "/distserve/free_cache",
            json={"remote_engine_id": "http://x", "remote_session_id": int(reply["id"])},
        )
        assert (client.states, control.links.kept_states) == ({}, 0)


@GENERATIONS
async def test_an_ordinary_reply_has_no_cache_fields(path: str, body: dict[str, Any]) -> None:
    client = FakeClient(script=keeping)
    async with controlled_client(FakeControl(), FakeModels(client)) as http:
        reply = (await http.post(f"/lmdeploy{path}", json={**body, "max_tokens": 1})).json()
        assert not {"cache_block_ids", "remote_token_ids"} & set(reply)
        assert not client.requests[0].keep_state


@GENERATIONS
async def test_a_cache_without_preserve_is_dropped(path: str, body: dict[str, Any]) -> None:
    client = FakeClient(script=keeping)
    control = FakeControl()
    async with controlled_client(control, FakeModels(client)) as http:
        client.states[1] = b"state"
        reply = (await http.post(f"/lmdeploy{path}", json={**body, "with_cache": True})).json()
        assert reply["remote_token_ids"] == [65]
        assert (client.states, control.links.kept_states) == ({}, 0)


@PREFIXES
async def test_sleep_and_wakeup(prefix: str) -> None:
    control = FakeControl()
    async with controlled_client(control) as client:

        async def sleeping() -> str:
            return (await client.get(f"{prefix}/is_sleeping")).text

        assert await sleeping() == '{"is_sleeping":false}'
        response = await client.post(f"{prefix}/sleep")
        assert (response.status_code, response.content) == (200, b"")
        await client.post(f"{prefix}/wakeup", params={"tags": "weights"})
        assert await sleeping() == '{"is_sleeping":true}'
        response = await client.post(f"{prefix}/wakeup", params={"tags": ["kv_cache", "nonsense"]})
        assert (response.status_code, response.content) == (200, b"")
        assert await sleeping() == '{"is_sleeping":false}'
        await client.post(f"{prefix}/sleep?level=2")
        assert control.levels == [1, 2]


@pytest.mark.parametrize(
    ("level", "words"),
    [(level, "1 or 2.") for level in ("3", "0", "-1", "01")]
    + [(level, "an integer.") for level in ("x", "1.0", "", "--1", "٣", "²")],
)
async def test_other_levels(level: str, words: str) -> None:
    control = FakeControl()
    async with controlled_client(control) as client:
        response = await client.post("/sleep", params={"level": level})
        assert response.json() == flat(f'The "level" query parameter must be {words}')
        assert control.levels == []


@PREFIXES
async def test_abort_and_terminate_where_they_are_not_allowed(prefix: str) -> None:
    control = FakeControl(may_abort=False, may_terminate=False)
    async with controlled_client(control) as client:
        aborted = await client.post(f"{prefix}/abort_request", json={"abort_all": True})
        assert aborted.status_code == 501
        assert aborted.headers["content-type"].startswith("text/plain")
        assert aborted.text == (
            "This server does not support abort requests. Enable with --enable-abort-handling flag."
        )
        ended = await client.get(f"{prefix}/terminate")
        assert ended.status_code == 400
        assert ended.json() == flat(
            "The server can not be terminated. Please add --allow-terminate-by-client when start the server."
        )
        assert control.terminations == 0


@PREFIXES
async def test_abort_and_terminate_where_they_are(prefix: str) -> None:
    control = FakeControl()
    async with controlled_client(control) as client:
        unknown = await client.post(f"{prefix}/abort_request", json={"session_id": 9})
        assert unknown.json() == flat("Session 9 not found.")
        every = await client.post(f"{prefix}/abort_request", json={"abort_all": True, "abort_message": "x"})
        assert (every.status_code, every.content) == (200, b"")
        ended = await client.get(f"{prefix}/terminate")
        assert (ended.status_code, ended.content, control.terminations) == (200, b"", 1)


BROWSER = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"


@PREFIXES
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site", "user-agent": BROWSER}, 403),
        (
            {"user-agent": BROWSER},
            403,
        ),  # a plain-http address of the network: browsers say nothing of the page
        ({"sec-fetch-site": "none", "user-agent": BROWSER}, 200),
        ({"sec-fetch-site": "same-origin", "user-agent": BROWSER}, 200),
        ({"user-agent": "curl/8.5.0"}, 200),
    ],
)
async def test_no_page_of_another_origin_ends_the_server(
    prefix: str, headers: dict[str, str], status: int
) -> None:
    control = FakeControl()
    async with controlled_client(control) as client:
        answer = await client.get(f"{prefix}/terminate", headers=headers)
    assert (answer.status_code, control.terminations) == (status, int(status == 200))


@PREFIXES
async def test_weights_are_taken_as_gguf(prefix: str) -> None:
    control = FakeControl()
    async with controlled_client(control) as client:
        for given, finished in ((GGUF, False), ([GGUF, GGUF], True), ([], True)):
            body = {"serialized_named_tensors": given, "load_format": "gguf", "finished": finished}
            response = await client.post(f"{prefix}/update_weights", json=body)
            assert (response.status_code, response.text) == (200, "null")
        part = b"GGUF and more"
        assert control.updates == [(None, [part], False), (None, [part, part], True), (None, [], True)]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"load_format": None}, "load_format: 'null' stands for pickled tensors"),
        ({"load_format": "flattened_bucket"}, "'flattened_bucket' stands for pickled tensors"),
        ({"serialized_named_tensors": {"a": 1}}, "must be base64 of a GGUF file"),
        ({"serialized_named_tensors": "é"}, "this is not base64"),
        ({"serialized_named_tensors": "AAA"}, "this is not base64"),
        ({"serialized_named_tensors": "AA AA"}, "this is not base64"),
    ],
)
async def test_other_weights_are_refused(changes: dict[str, Any], words: str) -> None:
    control = FakeControl()
    async with controlled_client(control) as client:
        body = {"serialized_named_tensors": GGUF, "load_format": "gguf", "finished": True, **changes}
        response = await client.post("/update_weights", json=body)
        assert response.status_code == 400 and words in response.json()["message"]
        assert control.updates == []
