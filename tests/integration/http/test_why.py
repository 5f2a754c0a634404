"""GET /extras/why names the cause that was sown, in every dialect that can have it; `top` and `why` print it."""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from jan_serve.resources import builtin_model
from tests.integration.http.support import COMPLETIONS, LONG_CTX, serving_models, workers_of
from tests.support.clients.raw_http import get, post
from tests.support.processes import wait_until
from tests.support.servers.served import Served

NAMES = ("read_file", "write_file", "run_command")
HI = [{"role": "user", "content": "Hi"}]
_IDS = itertools.count()

Body = dict[str, Any]


@dataclass(frozen=True)
class Chat:
    """What a client asks, in no dialect."""

    system: str
    turns: Sequence[Body]
    tools: Sequence[str] = ()
    max_tokens: int = 1
    schema: Body | None = None


def openai_chat(chat: Chat, path: str = "/v1/chat/completions") -> tuple[str, Body]:
    body: Body = {"messages": _messages(chat), "max_tokens": chat.max_tokens, **_functions(chat)}
    if chat.schema is not None:
        schema = {"name": "x", "schema": chat.schema}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    return path, body


def lmdeploy(chat: Chat) -> tuple[str, Body]:
    return openai_chat(chat, "/lmdeploy/v1/chat/completions")


def tgi(chat: Chat) -> tuple[str, Body]:
    path, body = openai_chat(chat, "/tgi/v1/chat/completions")
    if chat.schema is not None:
        body["response_format"] = {"type": "json", "value": chat.schema}
    return path, body


def ollama(chat: Chat) -> tuple[str, Body]:
    body: Body = {"messages": _messages(chat), "stream": False, **_functions(chat)}
    body["options"] = {"num_predict": chat.max_tokens}
    return "/api/chat", body if chat.schema is None else {**body, "format": chat.schema}


def anthropic(chat: Chat) -> tuple[str, Body]:
    body: Body = {"system": chat.system, "messages": list(chat.turns), "max_tokens": chat.max_tokens}
    if chat.tools:
        body["tools"] = [{"name": name, "input_schema": {"type": "object"}} for name in chat.tools]
    if chat.schema is not None:
        body["output_config"] = {"format": {"type": "json_schema", "schema": chat.schema}}
    return "/v1/messages", body


def responses(chat: Chat) -> tuple[str, Body]:
    body: Body = {"instructions": chat.system, "input": list(chat.turns), "store": False}
    body["max_output_tokens"] = max(16, chat.max_tokens)
    if chat.tools:
        body["tools"] = [{"type": "function", "name": name, "parameters": {}} for name in chat.tools]
    if chat.schema is not None:
        body["text"] = {"format": {"type": "json_schema", "name": "x", "schema": chat.schema}}
    return "/v1/responses", body


def _messages(chat: Chat) -> list[Body]:
    return [{"role": "system", "content": chat.system}, *chat.turns]


def _functions(chat: Chat) -> Body:
    found: list[Body] = [
        {"type": "function", "function": {"name": name, "parameters": {}}} for name in chat.tools
    ]
    return {"tools": found} if found else {}


Dialect = Callable[[Chat], tuple[str, Body]]
DIALECTS: list[Dialect] = [openai_chat, responses, anthropic, ollama, tgi, lmdeploy]
TEXTS: dict[str, Callable[[str], Body]] = {
    "/v1/completions": lambda text: {"prompt": text, "max_tokens": 1},
    "/api/generate": lambda text: {
        "system": text,
        "prompt": "Hi",
        "stream": False,
        "options": {"num_predict": 1},
    },
    "/tgi/generate": lambda text: {"inputs": text, "parameters": {"max_new_tokens": 1}},
    "/lmdeploy/v1/completions": lambda text: {"prompt": text, "max_tokens": 1},
}
in_every_dialect = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.__name__)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory, exact_llama: Path) -> Generator[str]:
    """One slot, one model in memory."""
    model = builtin_model()
    assert model is not None
    shelf = tmp_path_factory.mktemp("cold")
    others = [shutil.copyfile(exact_llama, shelf / f"{cold(dialect)}.gguf") for dialect in DIALECTS]
    flags = ("--max-models", "1", *ONE_SLOT)
    with serving_models(tmp_path_factory.mktemp("why"), model, *others, flags=flags) as served:
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


def reading_of(url: str, name: str) -> str:
    """Why its prompt was read."""
    others = {"cold_load", "swapped", "reload", "compile", "queue"}
    return next((code for code in codes(url, name) if code not in others), "nothing")


def cold(dialect: Dialect) -> str:
    """A model for this dialect alone."""
    return f"cold-{dialect.__name__}"


def is_writing(url: str) -> bool:
    return any(each["state"] == "writing" for each in get(url, "/extras/requests").json()["data"])


@contextlib.contextmanager
def a_long_answer(folder: Path, model: Path, parallel: int) -> Generator[tuple[Served, Future[str]]]:
    """A server that is writing 6000 tokens to a short prompt, and the id of that request once it has its answer."""
    flags = ("--parallel", str(parallel), "--n-ctx", str(LONG_CTX))
    with serving_models(folder, model, flags=flags) as served, ThreadPoolExecutor(1) as pool:
        body = {"prompt": "short", "max_tokens": 6000, "ignore_eos": True}
        writer = pool.submit(ask, served.url(), COMPLETIONS, body, model.stem)
        wait_until(lambda: is_writing(served.url()))
        yield served, writer


Works = Callable[[str], Sequence[Callable[[], str]]]


def asked_beside(folder: Path, model: Path, parallel: int, works: Works) -> tuple[list[list[str]], list[str]]:
    """Causes of the requests that these works send while a long answer is written, and those of that answer.

    Where most of it was written before they came, all begins again.
    """
    for number in range(5):
        with a_long_answer(folder / str(number), model, parallel) as (served, writer):
            names, written = sent_beside(served, works(served.url()), writer)
            if written is not None and written < 2000:
                found = [codes(served.url(), name) for name in names]
                return found, codes(served.url(), writer.result())
    raise AssertionError("the answer was over each time before the others came")


def sent_beside(
    served: Served, works: Sequence[Callable[[], str]], writer: Future[str]
) -> tuple[list[str], int | None]:
    """The ids, and how many tokens the answer had when all had come; None if it was over.

    The worker stands still until then.
    """
    [worker] = workers_of(served)
    worker.suspend()
    with ThreadPoolExecutor(len(works)) as pool:
        try:
            answers = [pool.submit(each) for each in works]
            wait_until(lambda: writer.done() or len(open_requests(served.url())) > len(works))
            rows = open_requests(served.url())
        finally:
            worker.resume()
        names = [each.result() for each in answers]
    return names, max(row["completion_tokens"] for row in rows) if len(rows) > len(works) else None


def open_requests(url: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = get(url, "/extras/requests").json()["data"]
    return [each for each in rows if each["state"] not in ("done", "failed", "cancelled")]


ONE_SLOT = ("--parallel", "1", "--cache-ram-mib", "0", "--cache-disk-mib", "0")
RULES = "You are a helper who answers in a few words.\n" * 6
QUESTION = {"role": "user", "content": "Tell me about the weather of this town and the next one. " * 8}
ANSWER = {"role": "assistant", "content": "It rains there. " * 10}


def system(name: str, *, day: int = 27, bill: str = "1f3a", left: int = 9000) -> str:
    return f"{name}\nx-billing: {bill}\nToday is 2026-11-{day}.\nTokens left: {left}\n{RULES}"


ASKED = [QUESTION, ANSWER, QUESTION]
EDITED = [QUESTION, {**ANSWER, "content": "No."}, QUESTION, ANSWER, QUESTION]
SOWN: list[tuple[str, dict[str, Any], Sequence[Body], Sequence[str]]] = [
    ("", {}, ASKED, NAMES[:2]),
    ("tokens_left", {"left": 8000}, ASKED, NAMES[:2]),
    ("date", {"day": 28}, ASKED, NAMES[:2]),
    ("billing", {"bill": "2b3a"}, ASKED, NAMES[:2]),
    ("history_edited", {}, EDITED, NAMES[:2]),
    ("tool_added", {}, EDITED, NAMES),
    ("tools_order", {}, EDITED, NAMES[::-1]),
]
"""Prompts that follow each other, the first without a change. A changed line of the system text stays so."""


def sown(dialect: Dialect) -> list[tuple[str, dict[str, Any], Sequence[Body], Sequence[str]]]:
    """All in OpenAI's chat. In others, those that show that system text, messages and tools are compared."""
    # TGI's chats are texts: of the whole, their lines are compared.
    few = ("", "date") if dialect is tgi else ("", "date", "history_edited", "tool_added")
    return [row for row in SOWN if dialect is openai_chat or row[0] in few]


@in_every_dialect
def test_what_the_client_changed(url: str, dialect: Dialect) -> None:
    found: list[str] = []
    lines: dict[str, Any] = {}
    rows = sown(dialect)
    for _, changes, turns, tools in rows:
        lines |= changes
        # Other dialects leave prompts that would be as near: each has words of its own.
        chat = Chat(system(dialect.__name__, **lines), turns, () if dialect is tgi else tools)
        found.append(reading_of(url, ask(url, *dialect(chat))))
    assert found[1:] == [row[0] for row in rows[1:]]


@in_every_dialect
def test_the_line_that_changed_in_a_message_of_the_user(url: str, dialect: Dialect) -> None:
    """Beside lines of all other kinds."""
    found: list[str] = []
    for day in (27, 28):
        content = system(f"to {dialect.__name__}", day=day)
        turns = [{**QUESTION, "content": content}, ANSWER, QUESTION]
        found.append(reading_of(url, ask(url, *dialect(Chat("Be brief.", turns)))))
    assert found[1] == "date"


@pytest.mark.parametrize("path", TEXTS)
def test_what_the_client_changed_in_a_text(url: str, path: str) -> None:
    found = [reading_of(url, ask(url, path, TEXTS[path](system(path, day=day)))) for day in (27, 28)]
    assert found[1] == "date"


@in_every_dialect
def test_a_cold_load_and_another_model_that_took_its_place(url: str, dialect: Dialect) -> None:
    ask(url, *dialect(Chat("x", HI)))
    assert "cold_load" in codes(url, ask(url, *dialect(Chat("x", HI)), model=cold(dialect)))
    assert "swapped" in codes(url, ask(url, *dialect(Chat("x", HI))))


@in_every_dialect
def test_a_cold_compile(url: str, dialect: Dialect) -> None:
    words = {
        f"{dialect.__name__} {number}": {"enum": [f"{number} a longer text {word}" for word in range(150)]}
        for number in range(150)
    }
    schema = {"type": "object", "properties": words}
    assert "compile" in codes(url, ask(url, *dialect(Chat("x", HI, schema=schema))))


def test_a_long_answer_before_it(tmp_path: Path, exact_llama: Path) -> None:
    """One slot: requests of all dialects wait for it."""

    def works(url: str) -> list[Callable[[], str]]:
        return [partial(ask, url, *dialect(Chat("queue", HI)), exact_llama.stem) for dialect in DIALECTS]

    found, _ = asked_beside(tmp_path, exact_llama, 1, works)
    assert ["queue" in each for each in found] == [True] * len(DIALECTS)


def test_the_cache_had_lost_it(tmp_path: Path) -> None:
    """Another prompt needs all cells, and nothing is kept elsewhere."""
    model = builtin_model()
    assert model is not None
    with serving_models(tmp_path, model, flags=("--n-ctx", "1024", *ONE_SLOT)) as served:
        names: list[str] = []
        for more in ([], [ANSWER, QUESTION]):
            chats = [Chat(f"{dialect.__name__} {RULES}", [*ASKED, *more]) for dialect in DIALECTS]
            pairs = zip(DIALECTS, chats, strict=True)
            names = [ask(served.url(), *dialect(chat)) for dialect, chat in pairs]
            if not more:
                ask(served.url(), COMPLETIONS, {"prompt": "1 " * 480, "max_tokens": 1})
        assert [reading_of(served.url(), name) for name in names] == ["evicted"] * len(DIALECTS)


def test_a_long_neighbour(tmp_path: Path, exact_llama: Path) -> None:
    body = {"prompt": "other words " * 1000, "max_tokens": 1}
    _, found = asked_beside(
        tmp_path, exact_llama, 4, lambda url: [partial(ask, url, COMPLETIONS, body, exact_llama.stem)]
    )
    assert "long_neighbour" in found


def test_another_key_sees_nothing(tmp_path: Path) -> None:
    model = builtin_model()
    assert model is not None
    with serving_models(tmp_path, model, flags=("--api-key", "one", "--api-key", "two")) as served:
        url = served.url()
        path, body = openai_chat(Chat("secret", HI))
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

    name = ask(url, *openai_chat(Chat("printed", HI)))
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
