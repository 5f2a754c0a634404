"""Each kind of request over the death of its worker: its answer is that of an undisturbed one."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from models.recipe.projector_fixtures import write_tiny_projector
from models.recipe.reranker_fixtures import write_decoder_reranker
from tests.integration.http.support import serving_models
from tests.support.clients.raw_http import get, post
from tests.support.media.pictures import RED, data_url, picture
from tests.support.processes import wait_until, workers_of
from tests.support.servers.served import Served

pytestmark = pytest.mark.integration

TEXT = "people live in homes near the water and read"
WARM: dict[str, Any] = {"seed": 5, "temperature": 0.9, "max_tokens": 20}
SAID = [{"role": "user", "content": TEXT}]
SEEN = [
    {"type": "text", "text": TEXT},
    {"type": "image_url", "image_url": {"url": data_url(picture(40, 30, color=RED))}},
]
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
TOOL = {"type": "function", "function": {"name": "look", "parameters": SCHEMA}}
QUESTION = {"question": "what is it?", "options": ["people", "the water", "oil"]}
_OF_A_MOMENT = ("_id", "_at", "_duration", "_ms")
CHAT, COMPLETIONS, DECIDE = "/v1/chat/completions", "/v1/completions", "/v1/decide"

RANKED: list[tuple[str, dict[str, Any]]] = [
    ("/v1/rerank", {"query": "where?", "documents": [TEXT, "read", "homes"]}),
    ("/v2/rerank", {"query": "where?", "documents": [TEXT, "read", "homes"], "top_n": 2}),
    ("/rerank", {"query": "where?", "texts": [TEXT, "read", "homes"]}),
]
KINDS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "eyes": [
        (CHAT, WARM | {"messages": [{"role": "user", "content": SEEN}]}),
        (CHAT, WARM | {"messages": [{"role": "user", "content": SEEN}], "n": 2}),
    ],
    "exact-llama": [
        (CHAT, WARM | {"messages": SAID, "n": 3}),
        (CHAT, WARM | {"messages": SAID, "logprobs": True, "top_logprobs": 3}),
        (CHAT, WARM | {"messages": SAID, "reasoning_effort": "high"}),
        (CHAT, WARM | {"messages": SAID, "tools": [TOOL], "tool_choice": "required", "max_tokens": 200}),
        (CHAT, {"messages": SAID, "response_format": {"type": "json_object"}, "max_tokens": 60}),
        (COMPLETIONS, WARM | {"prompt": TEXT, "n": 2, "best_of": 4}),
        (COMPLETIONS, WARM | {"prompt": [TEXT, "read", "homes near"], "n": 2}),
        (COMPLETIONS, {"prompt": TEXT, "echo": True, "logprobs": 2, "max_tokens": 0}),
        ("/v1/messages", {"messages": SAID, "max_tokens": 20, "temperature": 0}),
        ("/v1/messages/count_tokens", {"messages": SAID}),
        ("/v1/responses", {"input": TEXT, "max_output_tokens": 20, "temperature": 0}),
        ("/api/generate", {"prompt": TEXT, "stream": False, "options": {"seed": 5, "num_predict": 20}}),
        ("/tokenize", {"content": TEXT}),
        ("/detokenize", {"tokens": [70, 80, 90]}),
        (DECIDE, {"state": TEXT, "questions": {"a": QUESTION, "b": {"question": "home?", "type": "yes_no"}}}),
    ],
    "tiny-bert": [
        ("/v1/embeddings", {"input": [TEXT, "read", "homes near"]}),
        ("/v1/embeddings", {"input": TEXT, "encoding_format": "base64"}),
        ("/api/embed", {"input": [TEXT, "read"]}),
    ],
    "scores": RANKED,
    "writes": RANKED,
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, exact_llama: Path, tiny_bert: Path) -> Generator[Served]:
    given = tmp_path_factory.mktemp("given")
    paths = [
        given / f"{name}.gguf"
        for name in ("exact-llama", "tiny-bert", "eyes", "mmproj-eyes", "scores", "writes")
    ]
    shutil.copy(exact_llama, paths[0])
    shutil.copy(tiny_bert, paths[1])
    shutil.copy(exact_llama, paths[2])
    write_tiny_projector(paths[3], "mlp")
    write_decoder_reranker(paths[4], head=True)
    write_decoder_reranker(paths[5], head=False)
    with serving_models(tmp_path_factory.mktemp("kinds"), *paths, flags=("--max-models", "1")) as running:
        yield running


def asked(server: Served, model: str, kind: tuple[str, dict[str, Any]]) -> Any:
    path, body = kind
    response = post(server.url(), path, {"model": model, **body})
    assert response.status == 200, (path, response.body)
    return lasting(response.json())


def lasting(value: Any) -> Any:
    """A reply without what another moment changes."""
    if isinstance(value, dict):
        fields = cast(dict[str, Any], value)
        return {name: lasting(each) for name, each in fields.items() if not is_of_a_moment(name)}
    if isinstance(value, list):
        return [lasting(each) for each in cast(list[Any], value)]
    return pytest.approx(value, abs=1e-4) if isinstance(value, float) else value


def is_of_a_moment(name: str) -> bool:
    """Ids, times, and what was cached, which Anthropic's `input_tokens` leave out."""
    return (
        name in ("id", "created", "timings", "input_tokens") or "cache" in name or name.endswith(_OF_A_MOMENT)
    )


@pytest.mark.parametrize("model", KINDS)
def test_each_kind_ends_whole_over_the_death_of_its_worker(server: Served, model: str) -> None:
    kinds = KINDS[model]
    undisturbed = [asked(server, model, kind) for kind in kinds]
    [worker] = workers_of(server.process.pid)
    worker.suspend()  # all of them are open when it dies
    with ThreadPoolExecutor(len(kinds)) as threads:
        answers = [threads.submit(asked, server, model, kind) for kind in kinds]
        wait_until(lambda: get(server.url(), "/health").json()["open_requests"] == len(kinds))
        worker.send_signal(signal.SIGKILL)
        for kind, answer, whole in zip(kinds, answers, undisturbed, strict=True):
            assert answer.result(120) == whole, kind
    assert [each.pid for each in workers_of(server.process.pid)] != [worker.pid]
