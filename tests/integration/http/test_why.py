"""GET /extras/why names the cause that was sown, in every dialect that can have it; `top` and `why` print it."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from jan_serve.resources import builtin_model
from tests.integration.http.support import COMPLETIONS, LONG_CTX, serving_models
from tests.support.processes import wait_until
from tests.support.raw_http import get, post

SYSTEM = "Today is 2026-11-27.\n" + "You are a helper who answers in a few words. " * 20
TURN = {"role": "user", "content": "Tell me about the weather of this town and the next one. " * 14}
ANSWER = {"role": "assistant", "content": "It rains there. " * 10}
ONE_SLOT = ("--parallel", "1", "--cache-ram-mib", "0", "--cache-disk-mib", "0")
NAMES = ("read_file", "write_file", "run_command")
_IDS = itertools.count()

Body = dict[str, Any]


def openai(system: str, turns: list[Body], tools: list[str]) -> tuple[str, Body]:
    functions: list[Body] = [
        {"type": "function", "function": {"name": name, "parameters": {}}} for name in tools
    ]
    messages = [{"role": "system", "content": system}, *turns]
    return "/v1/chat/completions", {
        "messages": messages,
        "max_tokens": 1,
        **({"tools": functions} if tools else {}),
    }


def ollama(system: str, turns: list[Body], tools: list[str]) -> tuple[str, Body]:
    _, body = openai(system, turns, tools)
    return "/api/chat", {**body, "stream": False, "options": {"num_predict": body.pop("max_tokens")}}


def anthropic(system: str, turns: list[Body], tools: list[str]) -> tuple[str, Body]:
    found = [{"name": name, "input_schema": {"type": "object"}} for name in tools]
    body = {"system": system, "messages": turns, "max_tokens": 1, **({"tools": found} if tools else {})}
    return "/v1/messages", body


def responses(system: str, turns: list[Body], tools: list[str]) -> tuple[str, Body]:
    found: list[Body] = [{"type": "function", "name": name, "parameters": {}} for name in tools]
    body = {"instructions": system, "input": turns, "max_output_tokens": 16, "store": False}
    return "/v1/responses", {**body, **({"tools": found} if tools else {})}


Dialect = Callable[[str, list[Body], list[str]], tuple[str, Body]]
DIALECTS: list[Dialect] = [openai, ollama, anthropic, responses]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory, exact_llama: Path) -> Generator[str]:
    """One slot, one model in memory."""
    model = builtin_model()
    assert model is not None
    flags = ("--max-models", "1", *ONE_SLOT)
    with serving_models(tmp_path_factory.mktemp("why"), model, exact_llama, flags=flags) as served:
        yield served.url()


def ask(url: str, path: str, body: Body, model: str = "jan-tiny") -> str:
    """The id of a request that was answered."""
    name = f"asked-{next(_IDS)}"
    answer = post(url, path, {"model": model, "temperature": 0, **body}, headers={"x-request-id": name})
    assert answer.status == 200, answer.body
    return name


def codes(url: str, name: str) -> list[str]:
    """Those of its causes that are no mere work of the server, the longest first."""
    found = get(url, f"/extras/why/{quote(name)}").json()
    assert all(cause["text"] for cause in found["causes"])
    return [each["code"] for each in found["causes"] if each["code"] not in ("server", "template", "writing")]


def is_writing(url: str) -> bool:
    return any(each["state"] == "writing" for each in get(url, "/extras/requests").json()["data"])


@contextlib.contextmanager
def a_long_answer(folder: Path, model: Path, parallel: int) -> Generator[tuple[str, Future[str]]]:
    """A server that is writing 3000 tokens to a short prompt, and the id of that request once it has its answer."""
    flags = ("--parallel", str(parallel), "--n-ctx", str(LONG_CTX))
    with serving_models(folder, model, flags=flags) as served, ThreadPoolExecutor(1) as pool:
        body = {"prompt": "short", "max_tokens": 3000, "ignore_eos": True}
        writer = pool.submit(ask, served.url(), COMPLETIONS, body, model.stem)
        wait_until(lambda: is_writing(served.url()))
        yield served.url(), writer


LINE = "x-billing: 1f3a\n"
SOWN: list[tuple[str, tuple[str, list[Body], list[str]], tuple[str, list[Body], list[str]]]] = [
    ("date", (SYSTEM, [TURN], []), (SYSTEM.replace("27.", "28."), [TURN], [])),
    ("tools_order", (SYSTEM, [TURN], [*NAMES]), (SYSTEM, [TURN], [*NAMES[::-1]])),
    ("tool_added", (SYSTEM, [TURN], [*NAMES[:2]]), (SYSTEM, [TURN], [*NAMES])),
    ("billing", (LINE + SYSTEM, [TURN], []), (LINE.replace("1f", "2b") + SYSTEM, [TURN], [])),
    (
        "tokens_left",
        (SYSTEM + "\nTokens left: 9000", [TURN], []),
        (SYSTEM + "\nTokens left: 8000", [TURN], []),
    ),
    (
        "history_edited",
        (SYSTEM, [TURN, ANSWER, TURN], []),
        (SYSTEM, [TURN, {**ANSWER, "content": "No."}, TURN, ANSWER, TURN], []),
    ),
]


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.__name__)
@pytest.mark.parametrize(("code", "first", "second"), SOWN, ids=[row[0] for row in SOWN])
def test_what_the_client_changed(url: str, dialect: Dialect, code: str, first: Any, second: Any) -> None:
    def of_this_case(system: str, turns: list[Body], tools: list[str]) -> tuple[str, Body]:
        # Other cases leave prompts that would be as near: each has words of its own.
        return dialect(f"{system}\n{code} {dialect.__name__}", turns, tools)

    ask(url, *of_this_case(*first))
    assert codes(url, ask(url, *of_this_case(*second)))[0] == code


def test_another_model_took_its_place(url: str, exact_llama: Path) -> None:
    ask(url, *openai("x", [TURN], []))
    ask(url, COMPLETIONS, {"prompt": "hello", "max_tokens": 1}, model=exact_llama.stem)
    assert codes(url, ask(url, *openai("x", [TURN], [])))[0] == "swapped"


def test_a_cold_load(tmp_path: Path, exact_llama: Path) -> None:
    model = builtin_model()
    assert model is not None
    with serving_models(tmp_path, model, exact_llama) as served:
        name = ask(served.url(), COMPLETIONS, {"prompt": "hello", "max_tokens": 1}, model=exact_llama.stem)
        assert codes(served.url(), name)[0] == "cold_load"


def test_a_cold_compile(url: str) -> None:
    words = {
        f"field {number}": {"enum": [f"{number} a longer text {word}" for word in range(150)]}
        for number in range(150)
    }
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"properties": words}}}
    path, body = openai("x", [{"role": "user", "content": "Hi"}], [])
    assert "compile" in codes(url, ask(url, path, {**body, "response_format": schema}))


def test_a_long_answer_before_it(tmp_path: Path, exact_llama: Path) -> None:
    """One slot: the second request waits for it."""
    with a_long_answer(tmp_path, exact_llama, parallel=1) as (url, _):
        name = ask(url, COMPLETIONS, {"prompt": "queue", "max_tokens": 1}, exact_llama.stem)
        assert codes(url, name)[0] == "queue"


def test_the_cache_had_lost_it(tmp_path: Path) -> None:
    """Another conversation needs its cells, and nothing is kept elsewhere."""
    model = builtin_model()
    assert model is not None
    with serving_models(tmp_path, model, flags=("--n-ctx", "1280", *ONE_SLOT)) as served:
        url, turns = served.url(), [TURN, ANSWER, TURN]
        ask(url, *openai(SYSTEM + "evicted", turns, []))
        ask(url, *openai(f"Other {SYSTEM}", [{**TURN, "content": "1 " * 300}], []))
        assert codes(url, ask(url, *openai(SYSTEM + "evicted", [*turns, ANSWER, TURN], [])))[0] == "evicted"


def test_a_long_neighbour(tmp_path: Path, exact_llama: Path) -> None:
    with a_long_answer(tmp_path, exact_llama, parallel=4) as (url, writer):
        ask(url, COMPLETIONS, {"prompt": "other words " * 150, "max_tokens": 1}, exact_llama.stem)
        assert "long_neighbour" in codes(url, writer.result())


def test_another_key_sees_nothing(tmp_path: Path) -> None:
    model = builtin_model()
    assert model is not None
    with serving_models(tmp_path, model, flags=("--api-key", "one", "--api-key", "two")) as served:
        url = served.url()
        path, body = openai("secret", [TURN], [])
        headers = {"authorization": "Bearer one", "x-request-id": "mine"}
        assert post(url, path, body, headers=headers).status == 200
        for key, status, count in (("one", 200, 1), ("two", 404, 0)):
            headers = {"authorization": f"Bearer {key}"}
            assert get(url, "/extras/why/mine", headers=headers).status == status
            listed = get(url, "/extras/requests", headers=headers)
            assert len(listed.json()["data"]) == count
            assert b"secret" not in listed.body
        assert get(url, "/extras/requests").status == 401


def test_totals_are_saved_when_the_server_ends(tmp_path: Path) -> None:
    model = builtin_model()
    assert model is not None
    for count in (1, 2):
        with serving_models(tmp_path, model) as served:
            ask(served.url(), "/v1/completions", {"prompt": "hello", "max_tokens": 1})
            served.process.terminate()
            assert served.wait(60) == 0, served.log
        files = (tmp_path / "data" / "totals").glob("*.json")
        rows = [row for file in files for row in json.loads(file.read_text())["rows"]]
        assert sum(row["requests"] for row in rows) == count


def test_the_commands_print_it(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    from jan_serve.cli.main import main

    name = ask(url, *openai("printed", [TURN], []))
    assert main(["why", name, "--url", url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["id"] == name
    assert main(["why", "--slowest", "--url", url]) == 0
    assert " in all; " in capsys.readouterr().out
    assert main(["top", "--url", url, "--once"]) == 0
    assert name in capsys.readouterr().out
    assert main(["top", "--totals", "--days", "2", "--url", url]) == 0
    assert "jan-tiny" in capsys.readouterr().out
    assert main(["top", "--totals", "--url", url, "--json"]) == 0
    assert {"day", "model", "program", "requests"} <= json.loads(capsys.readouterr().out)[0].keys()
    assert main(["top", "--url", url, "--json"]) == 0
    assert name in [line["id"] for line in json.loads(capsys.readouterr().out)]
    assert main(["why", "no such", "--url", url]) != 0
    assert main(["why", name, "--last", "--url", url]) == 2
