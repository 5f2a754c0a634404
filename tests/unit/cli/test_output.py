"""Output of commands, and their tables: names are on one line, so that they can be copied."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from jan_serve.cli.client.loading import ProgressBar
from jan_serve.cli.commands.connect import _list as list_programs  # pyright: ignore[reportPrivateUsage]
from jan_serve.cli.commands.models import loaded as ps_module
from jan_serve.cli.commands.servers.nodes import print_nodes
from jan_serve.cli.main import main
from jan_serve.cli.output import output
from jan_serve.editors.recipe import EditorModel, Folders, ServerFacts
from jan_serve.editors.recipes import RECIPES
from jan_serve.resources import catalogue_file
from jan_serve.store.hub.references import Catalogue
from jan_serve.store.index import FileRecord, ModelIndex, ModelRecord, Source
from tests.unit.cli.commands.models.test_loaded import IDLE, Server
from tests.unit.store.gguf_builder import GgufBytes

COLUMNS = ("model", "status", "memory", "context", "device")
ROWS = [("jan-tiny", "loaded", "75 MB", "2048", ""), ("a-model-with-a-long-name", "failed", "", "", "CPU")]


@pytest.fixture
def at_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jan_serve.cli.output.on_terminal", lambda: True)


def printed(capsys: pytest.CaptureFixture[str], width: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(width))
    output.table(COLUMNS, ROWS)
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


@pytest.mark.usefixtures("at_width")
def test_a_table_that_fits(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    lines = printed(capsys, 80, monkeypatch)
    assert lines[1].split() == list(COLUMNS)
    assert lines[3].split() == ["jan-tiny", "loaded", "75", "MB", "2048"]


@pytest.mark.usefixtures("at_width")
@pytest.mark.parametrize("width", [30, 40])
def test_a_narrow_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    lines = printed(capsys, width, monkeypatch)
    assert lines[:5] == ["model    jan-tiny", "status   loaded", "memory   75 MB", "context  2048", ""]
    assert all(len(line) <= width for line in lines)
    assert "device   CPU" in lines


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_note_beside_a_progress_bar_is_written_above_it(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = _Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr", screen)
    bar = ProgressBar("alpha", "{task.description}")
    bar.update(1, 2)
    began = screen.tell()
    output.note("half of it")
    bar.close()
    before, _, after = screen.getvalue()[began:].partition("half of it")
    assert "\x1b[2K" in before  # the bar is erased
    assert "alpha" in after.split("\x1b[2K")[0]  # and drawn again below the note


@pytest.mark.usefixtures("at_width")
def test_names_are_not_cut(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert "a-model-with-a-long-name" in printed(capsys, 20, monkeypatch)


@pytest.mark.usefixtures("at_width")
def test_optional_columns_give_way_in_their_order(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def columns_at(width: int) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(width))
        output.table(COLUMNS, ROWS, optional=("device", "context", "memory"))
        return next(line for line in capsys.readouterr().out.splitlines() if line.strip()).split()

    assert columns_at(80) == ["model", "status", "memory", "context", "device"]
    assert columns_at(60) == ["model", "status", "memory", "context"]
    assert columns_at(50) == ["model", "status", "memory"]
    assert columns_at(40) == ["model", "status"]
    assert columns_at(35) == ["model", "jan-tiny"]


@pytest.mark.usefixtures("at_width")
@pytest.mark.parametrize("width", range(20, 120, 7))
def test_cells_are_whole_at_every_width(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    rows = [
        (f"org/a-name-of-some-{'l' * n}ength", "said in so many words", "x" * n, "模型")
        for n in range(1, 60, 9)
    ]
    monkeypatch.setenv("COLUMNS", str(width))
    output.table(("name", "a note", "code", "wide"), rows)
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    for name, *_ in rows:
        assert any(name in line for line in lines)
    for words in lines:
        assert len(words) <= width or max(map(len, words.split())) > width - 10, words


def test_without_a_terminal_a_row_is_a_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = printed(capsys, 20, monkeypatch)
    assert lines[4].split() == ["a-model-with-a-long-name", "failed", "CPU"]


SHORT = "gemma3-270m"
LONG = "lmstudio-community/gemma-3-270m-it-GGUF/gemma-3-270m-it-Q4_K_M"
ALIAS = "hf.co/lmstudio-community/gemma-3-270m-it-GGUF:Q4_K_M"
NAMES = [SHORT, LONG]


@pytest.fixture(params=[40, 60, 80, 200])
def width(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr("jan_serve.cli.output.on_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", str(request.param))
    return int(request.param)


@pytest.fixture
def models(own_folders: Path) -> Path:
    for name in NAMES:
        path = own_folders / f"{name}.gguf"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(GgufBytes().build())
    path = own_folders / f"{LONG}.gguf"
    record = ModelRecord(
        name=LONG,
        source=Source(kind="hub", name=LONG),
        files=(FileRecord(path=f"{LONG}.gguf", size_bytes=path.stat().st_size),),
        modified_ns=path.stat().st_mtime_ns,
        added_at=0,
        aliases=(ALIAS,),
    )
    ModelIndex(own_folders).add(record)
    (own_folders / "broken.gguf").write_bytes(b"hi")
    return own_folders


def ls(models: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    assert main(["ls"]) == 0
    return [*NAMES, "broken"]


def show(models: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    assert main(["show", LONG]) == 0
    return [LONG, ALIAS, str(models / f"{LONG}.gguf")]


def catalogue(models: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    assert main(["pull", "--list"]) == 0
    return [entry.name for entry in Catalogue.read(catalogue_file()).entries()]


def settings(models: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    with Path(os.environ["JAN_SERVE_CONFIG"]).open("a") as file:
        file.write(f'[models."{LONG}"]\nn_ctx = 64\n')
    assert main(["config"]) == 0
    return [f'models."{LONG}".n_ctx']


def imports(models: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    other = models.parent / "lmstudio"
    for name in NAMES:
        path = other / "org" / f"{name.replace('/', '-')}-GGUF" / f"{name.rpartition('/')[2]}.gguf"
        path.parent.mkdir(parents=True)
        path.write_bytes(GgufBytes().build())
    assert main(["import", "--from", "lmstudio", "--folder", str(other)]) == 0
    return [f"org/{name.replace('/', '-')}-GGUF/{name.rpartition('/')[2]}" for name in NAMES]


def loaded(models: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    failed = {
        "value": "failed",
        "reason": "require_accelerator: llama.cpp finds no accelerator that may be used",
    }
    server = Server(
        {**IDLE, "id": SHORT, "device": "CUDA0, CUDA1", "running": 3}, {**IDLE, "id": LONG, "status": failed}
    )

    def running_server(*_: object) -> Server:
        return server

    monkeypatch.setattr(ps_module, "running_server", running_server)
    assert main(["ps"]) == 0
    return NAMES


def nodes(models: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    node: dict[str, Any] = {
        "name": "http://a-machine-with-a-long-name.internal.example:11337",
        "state": "healthy",
        "routable": True,
        "role": "hybrid",
        "other_requests": 0,
        "failures": 1,
        "models": NAMES,
        "open_requests": 12,
        "requests": 3456,
        "hit_rate": 0.5,
        "prefill_tokens_per_s": 1234.0,
    }
    print_nodes([node])
    return [node["name"]]


def programs(models: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    model = EditorModel(LONG, 4096, is_chat=True, is_embedding=False)
    facts = ServerFacts("http://127.0.0.1:1337", needs_key=False, models=(model,), model=model)
    list_programs(facts, Folders(models, models, models, models))
    return list(RECIPES)


TABLES: Sequence[Callable[[Path, pytest.MonkeyPatch], list[str]]] = (
    ls, show, catalogue, settings, imports, loaded, nodes, programs,
)  # fmt: skip


@pytest.mark.parametrize("table", TABLES)
def test_no_table_breaks_a_name(
    width: int,
    models: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    table: Callable[[Path, pytest.MonkeyPatch], list[str]],
) -> None:
    names = table(models, monkeypatch)
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    for name in names:
        assert any(name in line for line in lines), (name, lines)
    for line in lines:
        assert len(line) <= width or max(map(len, line.split())) > width - 16, line


def test_other_names_are_whole_where_they_are_shown(
    models: Path, width: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ls"]) == 0
    text = capsys.readouterr().out
    assert (ALIAS in text) == (ALIAS[:20] in text)
    assert (ALIAS in text) or width in (80,)
