"""pull, ls, show, rm and import from the command line: output streams and exit statuses."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from jan_serve.cli.main import main
from jan_serve.store.model_memory import FreeMemory
from tests.integration.store.conftest import FILE, REPO, Bench, model_bytes
from tests.support.servers.fake_hub import FakeRepo, Fault

CANARY = "hf_canary-0123456789"
FREE = 8_000_000_000


@pytest.fixture
def configured(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """The bench as the configured store, without a built-in model and with a fixed amount of memory."""
    (tmp_path / "config.toml").write_text(f'data_dir = "data"\nmodels_dir = "{bench.models.as_posix()}"\n')
    monkeypatch.setenv("JAN_SERVE_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("HF_ENDPOINT", bench.hub.url)
    monkeypatch.setattr("jan_serve.wiring.parts.builtin_model", lambda: None)
    monkeypatch.setattr("jan_serve.cli.commands.models.pull.free_memory", lambda: FreeMemory(FREE))
    monkeypatch.setattr("pathlib.Path.home", lambda: tmp_path / "home")
    return bench


class Commands:
    """Runs commands and keeps their output."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.out = ""
        self.err = ""

    def __call__(self, *words: str) -> int:
        status = main(list(words))
        captured = self._capsys.readouterr()
        self.out, self.err = captured.out, captured.err
        return status

    def json(self, *words: str) -> Any:
        """The JSON output of a successful command."""
        assert self(*words, "--json") == 0, self.err
        return json.loads(self.out)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Commands:
    return Commands(capsys)


def test_from_pull_to_rm(configured: Bench, run: Commands) -> None:
    assert run("pull", REPO) == 0
    assert run.out == f"{REPO}/Tiny-Q8_0\n"
    assert "100 % of 3.15 MB" in run.err
    (row,) = run.json("ls")["models"]
    assert (row["name"], row["source"], row["quantisation"]) == (f"{REPO}/Tiny-Q8_0", f"hub: {REPO}", "Q8_0")
    shown = run.json("show", "tiny-gguf:q8_0", "--verify")
    assert shown["verified"] is True
    assert shown["revision"] == configured.hub.repos[REPO].commit
    assert run("show", "Tiny", "--template") == 1
    assert "has no chat template" in run.err
    removed = run.json("rm", "Tiny-Q8_0")["removed"]
    assert removed[0]["freed_bytes"] == len(configured.content())
    assert run.json("ls")["models"] == []


def test_the_quantisation_is_chosen_by_memory_with_a_reason(
    configured: Bench, run: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured.hub.repos["org/Many"] = FakeRepo(
        {f"m-{label}.gguf": model_bytes(1000 * n) for label, n in (("Q2_K", 2), ("Q4_K_M", 4), ("Q8_0", 8))}
    )
    pulled = run.json("pull", "org/Many")
    assert pulled["quantisation"] == "Q8_0"
    assert pulled["reason"] == "Q8_0: it needs about 0.5 GB of the 7.2 GB that are free."
    assert "Chose Q8_0" in run.err
    monkeypatch.setattr("jan_serve.cli.commands.models.pull.free_memory", lambda: FreeMemory(100_000_000))
    assert run("pull", "org/Many") == 1
    assert (
        "the smallest, Q2_K, needs about 0.5 GB" in run.err and "org/Many:Q2_K to have it anyway" in run.err
    )
    assert run("pull", "org/Many:Q2_K") == 0


def always() -> bool:
    return True


def small_catalogue(folder: Path) -> Path:
    path = folder / "catalogue.toml"
    path.write_text(
        f'[[model]]\nname = "tiny"\ntitle = "Tiny"\nrepo = "{REPO}"\nfile = "{FILE}"\nquantization = "Q8_0"\n'
        'kinds = ["chat", "tools"]\nparameters = 0.1\nsize_gb = 0.1\ncontext = 9\nmemory_gb = 1.0\n'
        'since = "2026-01"\nlicence = "MIT"\nnote = "x"\n'
    )
    return path


def test_catalogue_names_become_aliases(
    configured: Bench, run: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogue = small_catalogue(tmp_path)
    monkeypatch.setattr("jan_serve.wiring.parts.catalogue_file", lambda: catalogue)
    assert run("pull", "tiny") == 0
    assert run.json("show", "tiny")["name"] == f"{REPO}/Tiny-Q8_0"
    assert "tiny" in run.json("ls")["models"][0]["aliases"]
    assert run("pull", "tinny") == 2
    assert "Did you mean tiny?" in run.err
    assert run("pull", "--list") == 0
    assert "qwen3" in run.out


def test_without_a_name_it_shows_models_for_this_machine_and_the_command(
    configured: Bench, run: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jan_serve.cli.commands.models.pull.free_memory", lambda: FreeMemory(FREE))
    monkeypatch.setattr("jan_serve.store.model_advice.memory_bandwidth", lambda: 40e9)
    assert run("pull", "--for", "agents") == 0
    table, note = run.out, run.err
    shown = run.json("pull", "--for", "agents")
    assert (shown["for"], shown["machine"]["bandwidth"]) == ("agents", 40e9)
    assert [model["name"] in table for model in shown["models"]] == [True] * 3
    first = shown["models"][0]
    assert f"`{first['command']}` downloads the first one" in note
    assert first["fits"] and first["tokens_per_second"] >= 15 and "tools" in first["kinds"]
    assert run("pull") == 0
    assert run.json("pull")["for"] == "chat"
    assert configured.hub.requests == []


def test_on_a_terminal_it_asks_and_pulls_what_is_chosen(
    configured: Bench, run: Commands, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    catalogue = small_catalogue(tmp_path)
    for module in ("jan_serve.wiring.parts", "jan_serve.cli.commands.models.pull"):
        monkeypatch.setattr(f"{module}.catalogue_file", lambda: catalogue)
    monkeypatch.setattr("jan_serve.cli.commands.models.pull.free_memory", lambda: FreeMemory(FREE))
    monkeypatch.setattr("jan_serve.store.model_advice.memory_bandwidth", lambda: 40e9)
    monkeypatch.setattr("jan_serve.cli.commands.models.pull.may_ask", always)
    answers = iter(("9", "2", "1"))

    def answer(_question: str, **_options: object) -> str:
        return next(answers)

    monkeypatch.setattr("typer.prompt", answer)
    assert run("pull") == 0
    assert run.out.endswith(f"{REPO}/Tiny-Q8_0\n")
    assert "2  agents, which call tools" in run.err
    assert next(answers, None) is None


def test_newer_files_on_the_hub_are_listed_and_pulled(configured: Bench, run: Commands) -> None:
    assert run("pull", REPO) == 0
    name = f"{REPO}/Tiny-Q8_0"
    assert run.json("pull", "--update") == {"checked": 1, "models": []}
    newer = model_bytes(4 << 20, fill=9)
    configured.hub.repos[REPO] = FakeRepo({FILE: newer}, commit="f" * 40)
    [listed] = run.json("pull", "--update")["models"]
    assert (listed["name"], listed["commit"], listed["files"]) == (name, "f" * 40, [FILE])
    assert listed["size_bytes"] == len(newer)
    assert run("pull", "--update") == 0
    assert f"`jan-serve pull --update {name}` downloads" in run.err
    assert (configured.models / REPO / FILE).read_bytes() != newer, "a list downloads nothing"
    assert run("pull", "--update", "tiny") == 0
    assert (configured.models / REPO / FILE).read_bytes() == newer
    assert run.json("show", name, "--verify")["revision"] == "f" * 40
    assert run.json("pull", "--update", name)["models"] == []
    del configured.hub.repos[REPO]
    [gone] = run.json("pull", "--update")["models"]
    assert (gone["name"], gone["gone"], gone["commit"]) == (name, True, None)
    assert (configured.models / REPO / FILE).exists()


def test_every_failure_has_one_line_and_a_next_step(
    configured: Bench, run: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", CANARY)
    configured.hub.repos["org/Gated"] = FakeRepo({FILE: model_bytes(1000)}, gated=True, token="other")
    errors: list[str] = []
    for words, status, text in (
        (("pull", "--for", "poems"), 2, "is none of chat, agents"),
        (("pull", "--update", "nothing"), 2, "does not exist"),
        (("pull", "org/None"), 2, "There is no repository org/None"),
        (("pull", "org/Gated"), 1, "is gated: accept its conditions"),
        (("pull", f"{REPO}:Q1_K"), 2, "has no Q1_K. It has: Q8_0"),
        (("pull", REPO, "--revision", "v9"), 2, "has no revision v9"),
        (("pull", "https://evil.example/a/b"), 2, "evil.example is not the hub"),
        (("pull", "../../x"), 2, "is no model of the hub"),
        (("rm", "nothing"), 2, "does not exist"),
        (("show", "nothing"), 2, "does not exist"),
        (("import", "--from", "steam"), 2, "Cannot import from 'steam'"),
        (("import", "nothing"), 2, "was not found in other programs"),
    ):
        assert run(*words) == status, (words, run.err)
        # A gated repository can be listed: the hub rejects the download.
        lines = run.err[run.err.index("error: ") :].strip().splitlines()
        assert text in lines[0], (words, run.err)
        assert 1 < len(lines) <= 2 and run.out == ""
        errors.append(run.err)
    configured.hub.file_faults.append(Fault(flip_at=100))
    assert run("pull", REPO) == 1
    assert "is not what the hub lists: want SHA-256" in run.err
    configured.hub.stop()
    assert run("pull", REPO) == 1
    assert "offline" in run.err and "Traceback" not in run.err
    assert CANARY not in "".join(errors) + run.err
    assert run("config") == 0
    assert CANARY not in run.out + run.err and "HF_TOKEN" in run.out


def test_files_put_there_by_hand_are_asked_about(configured: Bench, run: Commands) -> None:
    mine = configured.models / "mine.gguf"
    mine.parent.mkdir()
    mine.write_bytes(model_bytes(1000))
    run.json("ls")
    assert run("rm", "mine") == 2
    assert "nothing was deleted" in run.err and "--yes" in run.err
    assert mine.exists()
    assert run("rm", "mine", "nothing", "--yes") == 2
    assert mine.exists()
    assert run("rm", "mine", "--yes") == 0
    assert not mine.exists()


def test_a_damaged_file_is_found_by_verify(configured: Bench, run: Commands) -> None:
    run("pull", REPO)
    path = configured.file()
    changed = bytearray(path.read_bytes())
    changed[-1] ^= 1
    times = path.stat()
    path.write_bytes(changed)
    import os

    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert run("show", "tiny", "--verify") == 1
    assert "differs from the downloaded one" in run.err


def test_import(configured: Bench, run: Commands, tmp_path: Path) -> None:
    assert run("import") == 0
    assert "No models of other programs were found" in run.err
    folder = tmp_path / "home" / ".lmstudio" / "models" / "pub" / "Repo-GGUF"
    folder.mkdir(parents=True)
    (folder / "m-Q4_K_M.gguf").write_bytes(model_bytes(1000))
    (folder / "broken.gguf").write_bytes(b"nothing")
    rows = {row["name"]: row for row in run.json("import")["models"]}
    assert rows["pub/Repo-GGUF/m-Q4_K_M"]["state"] == "new"
    assert rows["pub/Repo-GGUF/broken"]["state"] == "unusable"
    assert not configured.models.exists()
    assert run("import") == 0
    assert "import --all" in run.err
    assert run("import", "pub/Repo-GGUF/broken") == 1
    assert run("import", "--all") == 0
    assert "imported" in run.out
    assert {row["state"] for row in run.json("import", "--from", "lmstudio")["models"]} == {
        "already here",
        "unusable",
    }
    (row,) = run.json("ls")["models"]
    assert row["source"] == "LM Studio: pub/Repo-GGUF/m-Q4_K_M.gguf"
    assert run("rm", "m-Q4_K_M") == 0
    assert "original file stays" in run.err
    assert (folder / "m-Q4_K_M.gguf").exists()
    assert run("import", "--folder", str(folder)) == 2
    elsewhere = folder.parent.parent
    assert run.json("import", "--from", "lmstudio", "--folder", str(elsewhere), "--all")["models"]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no permission bits")
def test_models_in_a_new_data_folder_are_for_nobody_else(
    configured: Bench, run: Commands, tmp_path: Path
) -> None:
    """The models folder itself is as open as the umask says."""
    data = [tmp_path / "pulled" / "data", tmp_path / "imported" / "data"]
    folder = tmp_path / "home" / ".lmstudio" / "models" / "pub" / "Repo-GGUF"
    folder.mkdir(parents=True)
    (folder / "m-Q4_K_M.gguf").write_bytes(model_bytes(1000))
    config = tmp_path / "config.toml"
    before = os.umask(0o022)
    try:
        for place, words in zip(data, (("pull", REPO), ("import", "--all")), strict=True):
            config.write_text(f'data_dir = "{place.as_posix()}"\n')
            assert run("import") == 0
            assert not place.exists(), "a list makes no folder"
            assert run(*words) == 0
    finally:
        os.umask(before)
    modes = {oct(stat.S_IMODE(path.stat().st_mode)) for each in data for path in (each.parent, each)}
    assert modes == {"0o700"}
    assert {oct(stat.S_IMODE((each / "models").stat().st_mode)) for each in data} == {"0o755"}
