"""LMDeploy's routes over whole inputs."""

from __future__ import annotations

import base64
import struct
from typing import Any

import pytest

from tests.contract.lmdeploy.support import post
from tests.support.engine.fake_client import N_EMBD, FakeClient, FakeModels, fake_facts

pytestmark = pytest.mark.anyio

BOS = 256


async def call(path: str, body: dict[str, Any], **facts: Any) -> tuple[int, Any]:
    response = await post(path, body, FakeModels(FakeClient(facts=fake_facts(**facts))))
    return response.status_code, response.json()


ENCODED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "with BOS": ({"input": "ab"}, {"input_ids": [BOS, 97, 98], "length": 3}),
    "without": ({"input": "ab", "add_bos": False}, {"input_ids": [97, 98], "length": 2}),
    "null is the default": ({"input": "a", "add_bos": None}, {"input_ids": [BOS, 97], "length": 2}),
    "several": ({"input": ["a", "bc"], "add_bos": False}, {"input_ids": [[97], [98, 99]], "length": [1, 2]}),
    "none": ({"input": []}, {"input_ids": [], "length": []}),
    "empty": ({"input": "", "add_bos": False}, {"input_ids": [], "length": 0}),
}


@pytest.mark.parametrize("prefix", ["", "/lmdeploy"])
@pytest.mark.parametrize("case", ENCODED)
async def test_encode(case: str, prefix: str) -> None:
    body, wanted = ENCODED[case]
    assert await call(f"{prefix}/v1/encode", body) == (200, wanted)


async def test_encode_puts_the_template_around_a_text() -> None:
    template = "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    body = {"input": "Hi", "do_preprocess": True, "add_bos": False}
    _, reply = await call("/v1/encode", body, chat_templates={"default": template})
    assert bytes(reply["input_ids"]).decode() == "<s>[user]Hi"


async def test_too_many_inputs() -> None:
    status, reply = await call("/v1/encode", {"input": ["a"] * 2049})
    assert (status, reply["message"]) == (400, "input: has 2049 items, the limit is 2048")


async def test_embeddings() -> None:
    floats: list[Any] = []
    for encoding in (None, "float", "base64"):
        body = {"model": "fake", "input": ["a", "b"], "encoding_format": encoding}
        status, reply = await call("/lmdeploy/v1/embeddings", body)
        assert (status, reply["model"], [item["index"] for item in reply["data"]]) == (200, "fake", [0, 1])
        assert reply["usage"] == {"prompt_tokens": 2, "total_tokens": 2}
        vector = reply["data"][0]["embedding"]
        if encoding == "base64":
            vector = list(struct.unpack(f"<{N_EMBD}f", base64.b64decode(vector)))
        floats.append(vector)
    assert floats == [pytest.approx([0.6, 0.8, 0.0, 0.0])] * 3
    status, reply = await call("/lmdeploy/v1/embeddings", {"model": "fake", "input": "a", "dimensions": 0})
    assert (status, reply["message"]) == (400, "dimensions: must be from 1 to 2147483647, got 0")


@pytest.mark.parametrize("prefix", ["", "/lmdeploy"])
@pytest.mark.parametrize("given", ["a", ["a", "b"], [1, 2], [[1], [2]]])
async def test_pooling_of_vectors(given: Any, prefix: str) -> None:
    status, reply = await call(f"{prefix}/pooling", {"input": given}, is_embedding_model=True)
    assert status == 200
    assert reply["id"].startswith("pool-")
    count = 2 if given in (["a", "b"], [[1], [2]]) else 1
    assert [(item["index"], item["object"]) for item in reply["data"]] == [
        (index, "pooling") for index in range(count)
    ]
    assert len(reply["data"][0]["data"]) == N_EMBD
    assert reply["usage"]["completion_tokens"] == 0
    assert reply["model"] == "fake"


async def test_pooling_needs_a_model_that_is_made_for_it() -> None:
    status, reply = await call("/pooling", {"input": "a"})
    assert (status, reply["object"]) == (400, "error")
    assert "pooling needs a reward, reranking or embedding model" in reply["message"]


@pytest.mark.parametrize("prefix", ["", "/lmdeploy"])
async def test_the_old_chat_route_names_its_successor(prefix: str) -> None:
    status, reply = await call(f"{prefix}/v1/chat/interactive", {"prompt": "a"})
    assert (status, reply["object"]) == (400, "error")
    assert "use /v1/chat/completions" in reply["message"]
