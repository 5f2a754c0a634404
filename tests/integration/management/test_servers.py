"""A server process under limits: memory, secrets in logs, unusual folders, no network, few file descriptors."""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import psutil
import pytest

from tests.support.clients.raw_http import connect, post, post_bytes
from tests.support.processes import wait_until, workers_of
from tests.support.servers.fake_server import fake_server
from tests.support.servers.served import Served, serving

pytestmark = pytest.mark.integration

KEY: Final = "canary-api-key-4711"
TOKEN: Final = "hf_canarytoken4712"
PROMPT: Final = "canary prompt 4713"
SECRETS: Final = (KEY, TOKEN, PROMPT)
ROOT: Final = Path(__file__).resolve().parents[3]


class Client:
    """A caller of one server. Keeps every received body."""

    def __init__(self, url: str, key: str | None = None) -> None:
        self.address = urlsplit(url)
        self.key = key
        self.bodies: list[str] = []

    def call(self, method: str, path: str, body: Any = None, *, key: str | None = None) -> tuple[int, Any]:
        """One request on its own connection: the status, and the JSON value or the text."""
        connection = http.client.HTTPConnection(self.address.hostname or "", self.address.port, timeout=60)
        headers = {"Content-Type": "application/json"}
        if key or self.key:
            headers["Authorization"] = f"Bearer {key or self.key}"
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            with connection.getresponse() as response:
                text = response.read().decode()
                self.bodies.append(text)
                is_json = response.headers.get_content_type() == "application/json"
                return response.status, json.loads(text) if is_json else text
        finally:
            connection.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, exact_llama: Path) -> Generator[tuple[Served, Client]]:
    """Secrets in its configuration, folders with unusual names, one model that cannot fit."""
    folder = tmp_path_factory.mktemp("mödels ünd 模型")
    shelf = folder / "the shelf 模型"
    shelf.mkdir()
    (folder / "linked").symlink_to(shelf)
    for name in ("chat", "huge"):
        shutil.copyfile(exact_llama, shelf / f"{name}.gguf")
    (folder / "config.toml").write_text(
        'data_dir = "data/not/there yet"\nmodels_dir = "linked"\nmodel = "chat"\nthreads = 1\nport = 0\n'
        f'hf_endpoint = "http://127.0.0.1:9"\nhf_token = "{TOKEN}"\napi_keys = ["{KEY}"]\nlog_level = "debug"\n'
        '[models."huge"]\nn_ctx = 100_000_000\n',
        encoding="utf-8",
    )
    with serving(folder) as served:
        yield served, Client(served.url(), KEY)


def test_folders_with_unusual_names_missing_and_linked_work(server: tuple[Served, Client]) -> None:
    _, client = server
    status, answer = client.call("POST", "/v1/completions", {"prompt": "a", "max_tokens": 2})
    assert status == 200 and answer["usage"]["completion_tokens"] == 2
    assert [model["id"] for model in client.call("GET", "/models")[1]["data"]][:2] == ["chat", "huge"]


def test_a_model_that_cannot_fit_is_refused_with_figures_and_evicts_nothing(
    server: tuple[Served, Client],
) -> None:
    served, client = server
    assert client.call("POST", "/v1/completions", {"prompt": "a", "max_tokens": 1})[0] == 200
    before = [worker.pid for worker in workers_of(served.process.pid)]
    for path, body in (
        ("/v1/completions", {"model": "huge", "prompt": "a", "max_tokens": 1}),
        ("/v1/completions", {"model": "huge", "prompt": "a", "max_tokens": 1, "stream": True}),
        ("/models/load", {"model": "huge"}),
    ):
        status, answer = client.call("POST", path, body)
        assert (status, answer["error"]["code"]) == (503, "insufficient_memory")
        assert "GB of memory" in answer["error"]["message"] and "can be had" in answer["error"]["message"]
    assert [worker.pid for worker in workers_of(served.process.pid)] == before
    listed = {model["id"]: model["status"] for model in client.call("GET", "/models")[1]["data"]}
    assert listed["chat"]["value"] == "loaded"
    assert listed["huge"]["value"] == "failed" and "GB" in listed["huge"]["reason"]


def test_the_estimate_is_near_what_a_worker_takes_at_work(server: tuple[Served, Client]) -> None:
    _, client = server
    body = {"prompt": "a " * 200, "max_tokens": 8, "grammar": "root ::= [a-z ]{4,8}"}
    assert client.call("POST", "/v1/completions", body)[0] == 200

    def memory() -> dict[str, Any]:
        return next(model for model in client.call("GET", "/models")[1]["data"] if model["id"] == "chat")[
            "memory"
        ]

    wait_until(lambda: bool(memory()["resident"]))
    seen = memory()
    assert 0.75 * seen["resident"] < seen["total"] < 2 * seen["resident"]


def test_secrets_and_prompts_are_in_no_log_and_no_answer(server: tuple[Served, Client]) -> None:
    served, client = server
    chat = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 2}
    client.bodies.clear()
    for method, path, body in (
        ("POST", "/v1/chat/completions", chat),
        ("POST", "/v1/chat/completions", {**chat, "stream": True}),
        ("POST", "/v1/completions", {"prompt": PROMPT * 1000, "max_tokens": 2}),
        ("POST", "/v1/completions", {"prompt": PROMPT, "temperature": -5}),
        ("POST", "/v1/completions", {"prompt": PROMPT, "grammar": "root ::= ((("}),
        ("POST", "/v1/embeddings", {"input": [PROMPT]}),
        ("POST", "/models/pull", {"model": "org/repo"}),
        ("GET", "/models", None),
        ("GET", "/v1/models", None),
        ("GET", "/metrics", None),
        ("GET", "/health", None),
        ("GET", "/logs", None),
    ):
        assert client.call(method, path, body)[0] < 504, path
    assert client.call("GET", "/v1/models", key="wrong-" + KEY)[0] == 401
    # The model's text may be anything; everything else is ours.
    ours = [body for body in client.bodies if '"choices"' not in body]
    logs = [path.read_text() for path in served_folder(served).rglob("*.log*")]
    for secret in SECRETS:
        assert all(secret not in text for text in (*ours, *logs, served.log)), secret
    assert "/v1/chat/completions" in served.log


def served_folder(served: Served) -> Path:
    """The files that the server writes."""
    return Path(psutil.Process(served.process.pid).cwd())


_OFFLINE: Final = """
import fcntl, json, socket, struct, sys
sys.path[:0] = [sys.argv[1]]
from pathlib import Path
from tests.support.servers.served import serving
from tests.integration.management.test_servers import Client
with socket.socket() as sock:  # the loopback of a new namespace is down
    fcntl.ioctl(sock, 0x8914, struct.pack("16sh14x", b"lo", 1))
folder = Path(sys.argv[2])
with serving(folder, "--port", "0", "--threads", "1", "--model", sys.argv[3]) as served:
    client = Client(served.url())
    answers = [
        client.call("POST", "/v1/completions", {"prompt": "a", "max_tokens": 2})[0],
        client.call("POST", "/models/pull", {"model": "Qwen/Qwen3-0.6B-GGUF:Q8_0"}),
        client.call("GET", "/models")[0],
    ]
    print(json.dumps(answers))
"""


def test_without_a_network_it_starts_serves_and_reports_offline(tmp_path: Path, exact_llama: Path) -> None:
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "-rn", "true"], capture_output=True).returncode != 0:
        pytest.skip("needs unshare -rn (user and network namespaces)")
    command = [unshare, "-rn", sys.executable, "-c", _OFFLINE, str(ROOT), str(tmp_path), str(exact_llama)]
    done = subprocess.run(command, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr.decode()
    completed, pulled, listed = json.loads(done.stdout)
    assert (completed, listed) == (200, 200)
    assert pulled[0] == 503 and pulled[1]["error"]["code"] == "offline"


@contextlib.contextmanager
def no_descriptors(process: psutil.Process) -> Generator[None]:
    """The process can open nothing more."""
    resource = pytest.importorskip("resource")
    soft, hard = process.rlimit(resource.RLIMIT_NOFILE)
    is_open = {int(entry.name) for entry in Path(f"/proc/{process.pid}/fd").iterdir()}
    process.rlimit(resource.RLIMIT_NOFILE, (min(set(range(len(is_open) + 1)) - is_open), hard))
    try:
        yield
    finally:
        process.rlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(
    ("before", "status", "what"),
    [("/health", 200, "read its own files"), ("/v1/completions", 405, "open more files")],
    ids=["for the modules of the path", "for a worker"],
)
def test_few_descriptors_are_an_error_and_the_server_goes_on_when_they_are_back(
    tmp_path: Path, before: str, status: int, what: str
) -> None:
    with fake_server(tmp_path) as served, contextlib.ExitStack() as held:
        url = served.url()
        first = held.enter_context(connect(url))
        first.send(f"GET {before} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        assert first.response().status == status
        with no_descriptors(psutil.Process(served.process.pid)), contextlib.ExitStack() as flood:
            for _ in range(40):
                flood.enter_context(connect(url))
            first.send(post_bytes(url, "/v1/completions", {"prompt": "!say a"}))
            refused = first.response()
            error = refused.json()["error"]
            assert (refused.status, error["code"]) == (503, "unavailable")
            assert what in error["message"]
        wait_until(lambda: post(url, "/v1/completions", {"prompt": "!say back"}).status == 200)
        assert served.process.poll() is None
