"""Weights replaced while a server runs."""

from __future__ import annotations

import base64
import json
import pickle
import shutil
import threading
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from jan_serve.store.gguf.gguf_header import read_gguf_header
from models.recipe import fixtures
from tests.integration.http.support import LONG_CTX, VOCABULARY, complete, serving_models, text_of, workers_of
from tests.support.clients.raw_http import RawResponse, get, post
from tests.support.servers.served import Served
from tests.unit.store.gguf_builder import F32, GgufBytes, Tensor

pytestmark = pytest.mark.integration

COPIES = ("added", "asleep", "between", "bad")
QUESTION: dict[str, Any] = {"prompt": "hello", "max_tokens": 12}


@pytest.fixture(scope="module")
def other_weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the same shape as `exact_llama`, and of another seed."""
    path = tmp_path_factory.mktemp("other") / "other-llama.gguf"
    fixtures.write_tiny_llama(path, seed=1, quantize=False)
    return path


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, exact_llama: Path, other_weights: Path
) -> Generator[Served]:
    """`exact-llama` by default, the same under the names in COPIES, and the model of the other weights."""
    folder = tmp_path_factory.mktemp("weights")
    copies = [folder / f"{name}.gguf" for name in COPIES]
    for copy in copies:
        shutil.copyfile(exact_llama, copy)
    flags = ("--n-ctx", str(LONG_CTX), "--parallel", "2")
    with serving_models(folder, exact_llama, other_weights, *copies, flags=flags) as served:
        yield served
        assert list(folder.rglob("part-*.gguf")) == [], "parts that were collected and not used"
        assert len(list(folder.rglob("updated-*.gguf"))) <= len(COPIES) + 1, "one for each model at most"
        served.process.terminate()
        assert served.wait() == 0
        assert list((folder / "data").rglob("*.gguf")) == []


def tensors_of(path: Path) -> list[Tensor]:
    header = read_gguf_header(path)
    content = path.read_bytes()
    found: list[Tensor] = []
    for tensor in header.tensors:
        start = header.data_offset + tensor.offset
        assert tensor.type == "F32"
        found.append(Tensor(tensor.name, tensor.shape, F32, content[start : start + tensor.n_bytes]))
    return found


def encoded(tensors: Sequence[Tensor], **fields: Any) -> str:
    return base64.b64encode(GgufBytes(tensors=tensors, **fields).build()).decode()


def send(
    url: str, part: object, *, finished: bool, load_format: str | None = "gguf", **more: Any
) -> RawResponse:
    body = {"serialized_named_tensors": part, "load_format": load_format, "finished": finished, **more}
    return post(url, "/update_weights", body)


def answer(url: str, **fields: Any) -> str:
    return text_of(complete(url, **{**QUESTION, **fields}))


def refusal(response: RawResponse) -> str:
    assert response.status == 400, response.body[:500]
    body = response.json()
    assert set(body) == {"message", "type", "code", "param", "object"}
    return body["message"]


def test_all_tensors_in_parts_make_it_the_other_model(server: Served, other_weights: Path) -> None:
    url = server.url()
    wanted = answer(url, model=other_weights.stem)
    old = answer(url)
    assert wanted != old
    tensors = tensors_of(other_weights)
    for tensor in tensors[:-3]:
        response = send(url, encoded([tensor]), finished=False)
        assert (response.status, response.body) == (200, b"null")
    assert answer(url) == old, "nothing changes before the last part"
    assert send(url, [encoded([tensor]) for tensor in tensors[-3:]], finished=True).status == 200
    assert answer(url) == wanted


def test_updates_add_up_and_outlive_sleep(server: Served, other_weights: Path) -> None:
    url = server.url()
    wanted = answer(url, model=other_weights.stem)
    tensors = tensors_of(other_weights)
    half = len(tensors) // 2
    assert send(url, encoded(tensors[:half]), finished=True, model="added").status == 200
    mixed = answer(url, model="added")
    assert send(url, encoded(tensors[half:]), finished=True, model="added").status == 200
    assert mixed != wanted == answer(url, model="added")
    httpx.post(url + "/sleep?level=2", timeout=60)
    httpx.post(url + "/wakeup", timeout=60)
    assert answer(url, model="added") == wanted


def test_an_update_of_a_sleeping_server_counts_when_it_wakes(server: Served, other_weights: Path) -> None:
    url = server.url()
    wanted = answer(url, model=other_weights.stem)
    answer(url, model="asleep")
    httpx.post(url + "/sleep?level=2", timeout=60)
    assert workers_of(server) == []
    httpx.post(url + "/wakeup?tags=weights", timeout=60)
    assert send(url, encoded(tensors_of(other_weights)), finished=True, model="asleep").status == 200
    assert workers_of(server) == [], "it is tried in a worker that does not stay"
    httpx.post(url + "/wakeup?tags=kv_cache", timeout=60)
    assert answer(url, model="asleep") == wanted


def test_it_is_swapped_in_between_requests(server: Served, other_weights: Path) -> None:
    url = server.url()
    wanted = answer(url, model=other_weights.stem)
    long = {"prompt": "hello", "max_tokens": 4000, "ignore_eos": True, "temperature": 0, "model": "between"}
    whole = post(url, "/lmdeploy/v1/completions", long).json()["choices"][0]["text"]
    first, lines = threading.Event(), list[str]()

    def read() -> None:
        with httpx.stream(
            "POST", url + "/lmdeploy/v1/completions", json={**long, "stream": True}
        ) as response:
            for line in response.iter_lines():
                lines.append(line)
                first.set()

    reader = threading.Thread(target=read)
    reader.start()
    assert first.wait(60)
    assert send(url, encoded(tensors_of(other_weights)), finished=True, model="between").status == 200
    reader.join(60)
    assert lines[-2:] == ["data: [DONE]", ""]
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    text = "".join(event["choices"][0]["text"] for event in events)
    assert text == whole, "the request that ran ended with the weights that it began with"
    assert answer(url, model="between") == wanted


BAD: list[tuple[str, Any, str | None, str]] = [
    ("pickle", base64.b64encode(pickle.dumps([("a", 1)])).decode(), "gguf", "this is a pickle"),
    ("torch", base64.b64encode(b"PK\x03\x04 torch").decode(), "gguf", "this is a pickle"),
    ("format", "AAAA", None, "pickled tensors"),
    ("bucket", "AAAA", "flattened_bucket", "'flattened_bucket' stands for pickled tensors"),
    ("base64", "!!!", "gguf", "not base64"),
    ("text", base64.b64encode(b"hello").decode(), "gguf", "not a GGUF file"),
    ("object", {"a": 1}, "gguf", "must be base64"),
    ("empty", encoded([]), "gguf", "it holds no tensors"),
    ("cut", base64.b64encode(GgufBytes().build()[:-30]).decode(), "gguf", "incomplete"),
    ("name", encoded([Tensor("foo.weight", (64,), F32, bytes(256))]), "gguf", "no tensor 'foo.weight'"),
    ("shape", encoded([Tensor("output_norm.weight", (32,), F32, bytes(128))]), "gguf", "the shape [32]"),
    ("type", encoded([Tensor("output_norm.weight", (64,), 1, bytes(128))]), "gguf", "the type F16"),
    (
        "values",
        encoded([Tensor("output_norm.weight", (64,), F32, b"\x00\x00\xc0\x7f" * 64)]),
        "gguf",
        "not finite",
    ),
    (
        "architecture",
        encoded([Tensor("output_norm.weight", (64,), F32, bytes(256))], architecture="qwen2"),
        "gguf",
        "the architecture 'qwen2'",
    ),
]


def test_bad_updates_leave_the_old_weights(server: Served, other_weights: Path) -> None:
    url = server.url()
    old = answer(url, model="bad")
    worker = [process.pid for process in workers_of(server)]
    good = encoded(tensors_of(other_weights)[:4])
    for name, part, load_format, words in BAD:
        assert send(url, good, finished=False, model="bad").status == 200
        message = refusal(send(url, part, finished=True, load_format=load_format, model="bad"))
        assert words in message, name
        if load_format == "gguf" and name not in ("base64", "object"):
            assert "no weights were sent" in refusal(send(url, [], finished=True, model="bad")), name
    # Finite but useless: its computations overflow.
    huge = Tensor("output.weight", (64, VOCABULARY), F32, b"\xff\xff\x7f\x7f" * (64 * VOCABULARY))
    message = refusal(send(url, encoded([huge]), finished=True, model="bad"))
    assert "no finite logit" in message and "the old ones stay" in message
    assert answer(url, model="bad") == old
    assert [process.pid for process in workers_of(server)] == worker, "it was not even loaded again"
    assert get(url, "/health").status == 200


def test_an_unknown_model_is_not_found(server: Served) -> None:
    response = send(server.url(), "AAAA", finished=True, model="nobody")
    assert response.status == 404
    assert response.json()["message"] == "The model 'nobody' does not exist."
