"""A worker that dies while it encodes an image or a sound: all of its requests end whole, unless it dies each time."""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest

from models.recipe.projector_fixtures import write_tiny_hearing_projector, write_tiny_projector
from tests.integration.http.support import CHATS, serving_models
from tests.integration.http.test_deaths_of_kinds import TEXT, WARM, asked, lasting
from tests.support.clients.raw_http import RawResponse, get, post
from tests.support.media.pictures import data_url, picture
from tests.support.media.sounds import tone, wav
from tests.support.processes import wait_until, workers_of
from tests.support.servers.served import Served

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals"),
]

_DYING: Final = """
import importlib.abc, importlib.util, os, signal, sys
from contextlib import contextmanager
from pathlib import Path

LEFT = Path(__file__).with_name("left")


def die():
    os.kill(os.getpid(), signal.SIGKILL)


class Dying(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        if name == "jan_serve.engine.media_encoder":
            sys.meta_path.remove(self)
            found = importlib.util.find_spec(name)
            self.loader, found.loader = found.loader, self
            return found

    def exec_module(self, module):
        self.loader.exec_module(module)
        encoder, begin = module.MediaEncoder, module.MediaEncoder.__init__

        def dying(self, open_piece, *args, **options):
            @contextmanager
            def opened(piece):
                with open_piece(piece) as encode:
                    def encode_or_die(number):
                        left = LEFT.read_text() if LEFT.exists() else ""
                        if left == "each":
                            die()
                        if left == "0":
                            LEFT.unlink()
                            die()
                        found = encode(number)
                        if left == "after":
                            LEFT.unlink()
                            die()
                        if left:
                            LEFT.write_text(str(int(left) - 1))
                        return found
                    yield encode_or_die
            begin(self, opened, *args, **options)

        encoder.__init__ = dying


if "worker" in sys.orig_argv:
    sys.meta_path.insert(0, Dying())
"""
"""Imported by every process at its start. The file `left` says how many chunks a worker encodes before it dies."""


def images(*shades: int) -> list[dict[str, Any]]:
    return [
        {"type": "image_url", "image_url": {"url": data_url(picture(40, 30, color=(shade, 9, 90)))}}
        for shade in shades
    ]


def said(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [{"type": "text", "text": TEXT}, *parts]}]}


SOUND: Final = {
    "type": "input_audio",
    "input_audio": {"data": base64.b64encode(wav(tone(70))).decode(), "format": "wav"},
}
BLOCK: Final = {
    "type": "image",
    "source": {
        "type": "base64",
        "media_type": "image/png",
        "data": base64.b64encode(picture(30, 40, color=(9, 200, 9))).decode(),
    },
}
INPUT: Final = {"type": "input_image", "image_url": data_url(picture(20, 30, color=(9, 9, 200)))}
LONG: Final = (CHATS, WARM | said() | {"max_tokens": 300, "ignore_eos": True})
"""Writes while pictures are encoded."""
KINDS: Final[dict[str, list[tuple[str, dict[str, Any]]]]] = {
    "eyes": [
        (CHATS, WARM | said(*images(1, 60))),
        (CHATS, WARM | said(*images(120)) | {"n": 2, "logprobs": True}),
        ("/v1/messages", {"messages": said(BLOCK)["messages"], "max_tokens": 20, "temperature": 0}),
        (
            "/v1/responses",
            {"input": [{"role": "user", "content": [INPUT]}], "max_output_tokens": 20, "temperature": 0},
        ),
        (CHATS, WARM | said(*images(180))),
    ],
    "ears": [(CHATS, WARM | said(SOUND)), (CHATS, WARM | said(SOUND, SOUND) | {"n": 2})],
}


@pytest.fixture
def server(
    tmp_path: Path, exact_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> Generator[tuple[Served, Path]]:
    """The server, and the file that says when a worker dies."""
    given, dying = tmp_path / "given", tmp_path / "dying"
    for folder in (given, dying):
        folder.mkdir()
    (dying / "sitecustomize.py").write_text(_DYING, encoding="utf-8")
    paths = [given / f"{name}.gguf" for name in ("eyes", "mmproj-eyes", "ears", "mmproj-ears")]
    for model in paths[::2]:
        shutil.copy(exact_llama, model)
    write_tiny_projector(paths[1], "mlp")
    write_tiny_hearing_projector(paths[3])
    monkeypatch.setenv("PYTHONPATH", str(dying))
    with serving_models(tmp_path / "run", *paths, flags=("--max-models", "1")) as running:
        yield running, dying / "left"


def answered(
    server: Served, file: Path, left: str, model: str, kinds: list[tuple[str, dict[str, Any]]]
) -> list[RawResponse]:
    """The answers to these requests, which are all there before the worker reads one and later dies."""
    asked(server, model, (CHATS, WARM | said()))
    (worker,) = workers_of(server.process.pid)
    worker.suspend()
    file.write_text(left)
    with ThreadPoolExecutor(len(kinds)) as threads:
        answers = [threads.submit(post, server.url(), path, {"model": model, **body}) for path, body in kinds]
        wait_until(lambda: get(server.url(), "/health").json()["open_requests"] == len(kinds))
        worker.resume()
    assert worker not in workers_of(server.process.pid)
    return [answer.result() for answer in answers]


@pytest.mark.parametrize(("model", "left"), [("eyes", "0"), ("eyes", "2"), ("eyes", "after"), ("ears", "1")])
def test_what_a_worker_encodes_at_its_death_is_encoded_by_the_next_one(
    server: tuple[Served, Path], model: str, left: str
) -> None:
    served, file = server
    kinds = [LONG, *KINDS[model]]
    responses = answered(served, file, left, model, kinds)
    assert not file.exists(), "it died while it encoded"
    for kind, response in zip(kinds, responses, strict=True):
        assert response.status == 200, response.body
        assert lasting(response.json()) == asked(served, model, kind), kind


def test_a_picture_that_ends_each_worker_ends_alone(server: tuple[Served, Path]) -> None:
    served, file = server
    seen = (CHATS, WARM | said(*images(7)))
    written, refused = answered(served, file, "each", "eyes", [LONG, seen])
    file.unlink()
    assert (refused.status, refused.json()["error"]["code"]) == (503, "engine_crashed")
    assert lasting(written.json()) == asked(served, "eyes", LONG)
    asked(served, "eyes", seen)
