"""Two servers with one GGUF: one computes prompts, the other continues from them, and no state is left over."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.integration.http.relay import Relay
from tests.integration.http.support import metric, serving_models
from tests.support.clients.raw_http import get, post
from tests.support.gguf.models import tiny_llama as tiny_llama
from tests.support.processes import wait_until
from tests.support.servers.served import Served

pytestmark = pytest.mark.integration

FLAGS = ("--n-ctx", "512", "--parallel", "2")
DISTSERVE = "/distserve"
PROMPT = "A prompt that one server reads, and another one goes on from. "
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 24, "ignore_eos": True}
CHAT = ("/lmdeploy/v1/chat/completions", {"messages": [{"role": "user", "content": PROMPT}], **GREEDY})
COMPLETION = ("/lmdeploy/v1/completions", {"prompt": PROMPT, **GREEDY})
GENERATE = ("/lmdeploy/generate", {"prompt": PROMPT, **GREEDY})


class Engine:
    """A server as LMDeploy's proxy sees it."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.url = served.url()
        self.model = ""

    def call(self, path: str, body: dict[str, Any] | None = None, status: int = 200) -> Any:
        response = get(self.url, path) if body is None else post(self.url, path, body)
        assert response.status == status, response.body[:500]
        return json.loads(response.body)

    def info(self) -> dict[str, Any]:
        return json.loads(self.call(f"{DISTSERVE}/engine_info"))

    def initialize(self, other: Engine) -> dict[str, Any]:
        body = {
            "protocol": 1,
            "local_engine_id": self.url,
            "local_engine_config": self.info(),
            "remote_engine_id": other.url,
            "remote_engine_config": other.info(),
        }
        return self.call(f"{DISTSERVE}/p2p_initialize", body)

    def connect(self, other: Engine, endpoints: dict[str, Any]) -> dict[str, Any]:
        body = {
            "protocol": 1,
            "remote_engine_id": other.url,
            "remote_engine_endpoint_info": endpoints["engine_endpoint_info"],
            "remote_kvtransfer_endpoint_info": endpoints["kvtransfer_endpoint_info"],
        }
        return self.call(f"{DISTSERVE}/p2p_connect", body)

    def drop(self, other: Engine) -> None:
        body = {"engine_id": self.url, "remote_engine_id": other.url}
        assert self.call(f"{DISTSERVE}/p2p_drop_connect", body) == {"success": True}

    def free(self, session: int) -> None:
        body = {"remote_engine_id": self.url, "remote_session_id": session}
        assert self.call(f"{DISTSERVE}/free_cache", body) == {"status": "SUCCESS"}

    def sockets(self) -> int:
        """TCP connections that are open, without those of this test."""
        found = psutil.Process(self.served.process.pid).net_connections("tcp")
        port = int(self.url.rsplit(":", 1)[1])
        return sum(each.status == psutil.CONN_ESTABLISHED and each.laddr.port != port for each in found)

    def states(self) -> float:
        return metric(self.url, "jan_serve_engine_states")


def link(prefill: Engine, decode: Engine) -> None:
    of_prefill, of_decode = prefill.initialize(decode), decode.initialize(prefill)
    assert of_prefill["status"] == 1
    assert prefill.connect(decode, of_decode) == {"status": 1}
    assert decode.connect(prefill, of_prefill) == {"status": 1}


def prefilled(prefill: Engine, path: str, body: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The proxy's first step: the reply of the server that computes the prompt."""
    first = {"model": prefill.model, **body, "max_tokens": 1, "with_cache": True, "preserve_cache": True}
    return prefill.call(path, {**first, **changes})


def resumed(decode: Engine, prefill: Engine, path: str, body: dict[str, Any], reply: dict[str, Any]) -> Any:
    """The body of the second step."""
    return {
        "model": decode.model,
        **body,
        "migration_request": {
            "protocol": 1,
            "remote_engine_id": prefill.url,
            "remote_session_id": int(reply["id"]),
            "remote_block_ids": reply["cache_block_ids"],
            "remote_token_id": reply["remote_token_ids"][0],
            "is_dummy_prefill": False,
        },
    }


@contextlib.contextmanager
def engine(folder: Path, model: Path, *flags: str) -> Generator[Engine]:
    with serving_models(folder, model, flags=(*FLAGS, *flags)) as served:
        one = Engine(served)
        one.model = model.stem
        yield one


@pytest.fixture(scope="module")
def prefill(tmp_path_factory: pytest.TempPathFactory, exact_llama: Path) -> Generator[Engine]:
    with engine(tmp_path_factory.mktemp("prefill"), exact_llama) as one:
        yield one


@pytest.fixture(scope="module")
def decode(tmp_path_factory: pytest.TempPathFactory, exact_llama: Path) -> Generator[Engine]:
    with engine(tmp_path_factory.mktemp("decode"), exact_llama) as one:
        yield one


@pytest.fixture
def pair(prefill: Engine, decode: Engine) -> Generator[tuple[Engine, Engine]]:
    """Linked before the test; after it neither keeps a state or a connection."""
    link(prefill, decode)
    yield prefill, decode
    for one in (prefill, decode):
        wait_until(lambda one=one: one.sockets() == 0)
        wait_until(lambda one=one: _idle_states(one) == 0)


def _idle_states(one: Engine) -> float:
    one.call("/v1/completions", {"prompt": "x", "max_tokens": 1})  # brings the counters
    return one.states()


def content(reply: dict[str, Any]) -> Any:
    if "choices" not in reply:
        return reply["text"], reply["output_ids"], reply["meta_info"]["completion_tokens"]
    choice = reply["choices"][0]
    # Which tokens were cached depends on the server.
    usage = {name: count for name, count in reply["usage"].items() if name != "prompt_tokens_details"}
    return choice.get("text", choice.get("message")), usage


SEEDED: dict[str, Any] = {"temperature": 0.9, "seed": 5}


@pytest.mark.parametrize(
    ("path", "body", "sampling"),
    [
        (*CHAT, {}),
        (*COMPLETION, {}),
        (*GENERATE, {}),
        (*CHAT, SEEDED),
        (*COMPLETION, {**SEEDED, "return_token_ids": True, "logprobs": 2}),
    ],
)
def test_the_answer_is_that_of_one_server(
    pair: tuple[Engine, Engine], path: str, body: dict[str, Any], sampling: dict[str, Any]
) -> None:
    prefill, decode = pair
    body = {**body, **sampling}
    reply = prefilled(prefill, path, body)
    assert reply["cache_block_ids"] == list(range(len(reply["cache_block_ids"]))) != []
    assert len(reply["remote_token_ids"]) == 1
    moved = decode.call(path, resumed(decode, prefill, path, body, reply))
    alone = prefill.call(path, {"model": prefill.model, **body})
    assert content(moved) == content(alone)


def test_a_stream_goes_on_too(pair: tuple[Engine, Engine]) -> None:
    prefill, decode = pair
    path, body = GENERATE
    reply = prefilled(prefill, path, body)
    response = post(decode.url, path, {**resumed(decode, prefill, path, body, reply), "stream": True})
    events = [line[6:] for line in response.body.decode().splitlines() if line.startswith("data: {")]
    text = "".join(json.loads(event)["text"] for event in events)
    assert text == prefill.call(path, body)["text"]
    assert response.body.endswith(b"data: [DONE]\n\n")


def test_the_prompt_is_not_computed_again(pair: tuple[Engine, Engine]) -> None:
    prefill, decode = pair
    path, body = (
        "/lmdeploy/generate",
        {"prompt": "Never seen before. " * 8, "temperature": 0, "max_tokens": 6},
    )
    reply = prefilled(prefill, path, body)
    before = metric(decode.url, "jan_serve_engine_computed_tokens_total")
    decode.call(path, resumed(decode, prefill, path, body, reply))
    _idle_states(decode)
    assert metric(decode.url, "jan_serve_engine_computed_tokens_total") - before < 20


def test_a_cache_is_fetched_once_and_can_be_freed(pair: tuple[Engine, Engine]) -> None:
    prefill, decode = pair
    path, body = COMPLETION
    reply = prefilled(prefill, path, body)
    request = resumed(decode, prefill, path, body, reply)
    decode.call(path, request)
    assert "Nothing is kept" in decode.call(path, request, status=400)["message"]
    reply = prefilled(prefill, path, body)
    prefill.free(int(reply["id"]))
    prefill.free(int(reply["id"]))
    again = resumed(decode, prefill, path, body, reply)
    assert "Nothing is kept" in decode.call(path, again, status=400)["message"]


def test_a_session_with_a_cache_is_occupied(pair: tuple[Engine, Engine]) -> None:
    prefill, _ = pair
    path, body = GENERATE
    assert prefilled(prefill, path, body, session_id=77)["id"] == "77"
    again = {**body, "session_id": 77, "with_cache": True, "preserve_cache": True}
    assert prefill.call(path, again, status=400)["message"] == "The session_id 77 is occupied."
    prefill.free(77)


def test_a_cache_that_is_not_preserved_is_gone(pair: tuple[Engine, Engine]) -> None:
    prefill, decode = pair
    path, body = COMPLETION
    reply = prefilled(prefill, path, body, preserve_cache=False)
    assert reply["remote_token_ids"]
    request = resumed(decode, prefill, path, body, reply)
    assert "Nothing is kept" in decode.call(path, request, status=400)["message"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"remote_engine_id": "http://127.0.0.1:1"}, "not linked"),
        ({"remote_session_id": 123_456}, "Nothing is kept here of session 123456"),
        ({"remote_token_id": -5}, "not a token id"),
    ],
)
def test_a_wrong_reference_is_the_callers_error(
    pair: tuple[Engine, Engine], changes: dict[str, Any], words: str
) -> None:
    prefill, decode = pair
    path, body = COMPLETION
    reply = prefilled(prefill, path, body)
    request = resumed(decode, prefill, path, body, reply)
    request["migration_request"].update(changes)
    assert words in decode.call(path, request, status=400)["message"]
    prefill.free(int(reply["id"]))


def test_another_prompt_or_token_is_refused(pair: tuple[Engine, Engine]) -> None:
    prefill, decode = pair
    path, body = COMPLETION
    reply = prefilled(prefill, path, body)
    other = resumed(decode, prefill, path, {**body, "prompt": "Another prompt"}, reply)
    assert "another prompt" in decode.call(path, other, status=400)["message"]
    reply = prefilled(prefill, path, body)
    request = resumed(decode, prefill, path, body, reply)
    request["migration_request"]["remote_token_id"] += 1
    assert "remote_token_id" in decode.call(path, request, status=400)["message"]


def test_a_dummy_prefill_is_an_ordinary_request(pair: tuple[Engine, Engine]) -> None:
    _, decode = pair
    path, body = GENERATE
    request = {
        **body,
        "migration_request": {"remote_engine_id": "x", "remote_session_id": 0, "is_dummy_prefill": True},
    }
    assert content(decode.call(path, request)) == content(decode.call(path, body))


def test_streams_and_choices_cannot_say_what_is_cached(pair: tuple[Engine, Engine]) -> None:
    prefill, _ = pair
    path, body = COMPLETION
    base = {"model": prefill.model, **body, "with_cache": True}
    assert "stream" in prefill.call(path, {**base, "stream": True}, status=400)["message"]
    assert "one choice" in prefill.call(path, {**base, "n": 2}, status=400)["message"]
    assert "one choice" in prefill.call(path, {**base, "prompt": ["a", "b"]}, status=400)["message"]


def test_many_at_once_and_clients_that_leave_keep_nothing(pair: tuple[Engine, Engine]) -> None:
    prefill, decode = pair
    path = GENERATE[0]

    def one(number: int) -> bool:
        body = {"prompt": f"{number}: {PROMPT * (number % 4 + 1)}", **GREEDY, "max_tokens": 60}
        reply = prefilled(prefill, path, body)
        request = resumed(decode, prefill, path, body, reply)
        if number % 3 == 0:
            # The client leaves at some point: before, while or after the state is fetched.
            with contextlib.suppress(httpx.TransportError):
                httpx.post(decode.url + path, json=request, timeout=0.005 + 0.003 * number)
            prefill.free(int(reply["id"]))
            return True
        return decode.call(path, request)["output_ids"] == prefill.call(path, body)["output_ids"]

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(one, range(16)))


def test_a_dropped_link_is_an_error_until_it_is_made_again(prefill: Engine, decode: Engine) -> None:
    link(prefill, decode)
    path, body = COMPLETION
    reply = prefilled(prefill, path, body)
    request = resumed(decode, prefill, path, body, reply)
    prefill.drop(decode)
    assert "does not know the key" in decode.call(path, request, status=503)["message"]
    decode.drop(prefill)
    assert "not linked" in decode.call(path, request, status=400)["message"]
    link(prefill, decode)
    assert decode.call(path, request)["choices"][0]["text"]


@pytest.mark.parametrize("after", [100, 20_000])
def test_a_cut_transfer_is_an_error(prefill: Engine, decode: Engine, after: int) -> None:
    endpoints = prefill.initialize(decode)
    decode.initialize(prefill)
    info = json.loads(endpoints["kvtransfer_endpoint_info"][0]["endpoint_info"])
    with contextlib.closing(Relay(info["port"])) as relay:
        info["port"] = relay.port
        endpoints["kvtransfer_endpoint_info"][0]["endpoint_info"] = json.dumps(info)
        assert decode.connect(prefill, endpoints) == {"status": 1}
        path, body = COMPLETION
        reply = prefilled(prefill, path, body)
        request = resumed(decode, prefill, path, body, reply)
        relay.cut = relay.passed + after
        refused = decode.call(path, request, status=503)
        assert "broke off" in refused["message"] or "closed the connection" in refused["message"]
        relay.cut = None
        assert decode.call(path, request)["choices"][0]["text"], "what was kept is still there"
    for one in (prefill, decode):
        wait_until(lambda one=one: one.sockets() == 0)
        wait_until(lambda one=one: _idle_states(one) == 0)


def test_a_wrong_key_is_not_connected(prefill: Engine, decode: Engine) -> None:
    endpoints = prefill.initialize(decode)
    decode.initialize(prefill)
    info = json.loads(endpoints["kvtransfer_endpoint_info"][0]["endpoint_info"])
    info["key"] = "A" * 43 + "="
    endpoints["kvtransfer_endpoint_info"][0]["endpoint_info"] = json.dumps(info)
    reply = decode.connect(prefill, endpoints)
    assert reply["status"] == 2 and "key" in reply["message"]


def test_another_model_is_refused(prefill: Engine, tiny_llama: Path, tmp_path: Path) -> None:
    path, body = COMPLETION
    with engine(tmp_path, tiny_llama) as other:
        link(prefill, other)
        reply = prefilled(prefill, path, body)
        request = resumed(other, prefill, path, body, reply)
        assert "another model" in other.call(path, request, status=400)["message"]
        wait_until(lambda: _idle_states(other) == 0)
        assert _idle_states(prefill) == 1, "another server may still come for it"
        prefill.free(int(reply["id"]))
        assert other.call(path, {"model": other.model, **body})["choices"][0]["text"]
    wait_until(lambda: _idle_states(prefill) == 0)


def test_a_peer_that_died_is_an_error(decode: Engine, exact_llama: Path, tmp_path: Path) -> None:
    path, body = COMPLETION
    with engine(tmp_path, exact_llama) as lost:
        link(lost, decode)
        reply = prefilled(lost, path, body)
        request = resumed(decode, lost, path, body, reply)
        lost.served.process.kill()
        lost.served.wait()
        assert "cannot be reached" in decode.call(path, request, status=503)["message"]
    assert decode.sockets() == 0
    wait_until(lambda: _idle_states(decode) == 0)


def test_a_worker_that_died_takes_its_caches_with_it(pair: tuple[Engine, Engine]) -> None:
    prefill, decode = pair
    path, body = COMPLETION
    reply = prefilled(prefill, path, body)
    for child in psutil.Process(prefill.served.process.pid).children():
        if "worker" in child.cmdline():
            child.kill()
            child.wait(10)
    request = resumed(decode, prefill, path, body, reply)
    refused = decode.call(path, request, status=503)
    assert "ended before" in refused["message"]
    prefill.free(int(reply["id"]))
