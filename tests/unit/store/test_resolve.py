"""Names to files: what matches, what is ambiguous, what is refused, and that names never reach the file system."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

import pytest
from msgspec.structs import replace

from jan_serve.errors import InvalidRequest, JanServeError, ModelNotFound, SettingsError, Unavailable
from jan_serve.store.index import STATE_FOLDER, ModelEntry, ModelIndex
from jan_serve.store.model_folder import ModelFolder
from jan_serve.store.model_names import ConfiguredNames, LastModel
from jan_serve.store.resolve import ModelResolver
from tests.unit.store.descriptors import no_descriptors
from tests.unit.store.gguf_builder import BOOL, GgufBytes, key, string_key, uint_key

FILES = (
    "Qwen3-0.6B-Q8_0.gguf",
    "llama/Llama-3.2-1B.gguf",
    "llama/Llama-3.2-3B.gguf",
    "other/llama-3.2-1b.gguf",
    "big/Big-00001-of-00002.gguf",
    "big/Big-00002-of-00002.gguf",
    "mmproj-vision.gguf",
    ".hidden.gguf",
    ".cache/blob.gguf",
    "notes.txt",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    models = tmp_path / "models"
    for name in FILES:
        path = models / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"GGUF")
    return models


@pytest.fixture
def builtin(tmp_path: Path) -> tuple[str, Path]:
    path = tmp_path / "shipped" / "jan-tiny.gguf"
    path.parent.mkdir()
    path.write_bytes(GgufBytes().build())
    return "jan-tiny", path


def test_lists_servable_models(folder: Path, builtin: tuple[str, Path]) -> None:
    entries = ModelResolver(folder, builtin=builtin).entries()
    assert [entry.name for entry in entries] == [
        "Qwen3-0.6B-Q8_0",
        "big/Big",
        "llama/Llama-3.2-1B",
        "llama/Llama-3.2-3B",
        "other/llama-3.2-1b",
        "jan-tiny",
    ]
    assert entries[1].path == folder / "big/Big-00001-of-00002.gguf"


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("Qwen3-0.6B-Q8_0", "Qwen3-0.6B-Q8_0.gguf"),
        ("Qwen3-0.6B-Q8_0.gguf", "Qwen3-0.6B-Q8_0.gguf"),
        ("qwen3-0.6b-q8_0", "Qwen3-0.6B-Q8_0.gguf"),
        ("QWEN3-0.6B-Q8_0.GGUF", "Qwen3-0.6B-Q8_0.gguf"),
        ("llama/Llama-3.2-1B", "llama/Llama-3.2-1B.gguf"),
        ("Llama-3.2-1B", "llama/Llama-3.2-1B.gguf"),
        ("llama-3.2-1b", "other/llama-3.2-1b.gguf"),
        ("LLAMA/LLAMA-3.2-1B", "llama/Llama-3.2-1B.gguf"),
        ("Llama-3.2-3b", "llama/Llama-3.2-3B.gguf"),
        ("Big", "big/Big-00001-of-00002.gguf"),
    ],
)
def test_names_that_match(folder: Path, name: str, file: str) -> None:
    assert ModelResolver(folder).resolve(name).path == folder / file


def test_unknown_names_come_with_near_ones(folder: Path) -> None:
    with pytest.raises(ModelNotFound) as caught:
        ModelResolver(folder).resolve("qwen3-0.6B-q4")
    assert caught.value.near[0] == "Qwen3-0.6B-Q8_0"
    with pytest.raises(ModelNotFound) as caught:
        ModelResolver(folder).resolve("gpt-4o")
    assert caught.value.near == ()


@pytest.mark.parametrize(
    "name", ["mmproj-vision", ".hidden", "blob", "Big-00002-of-00002", "notes", "llama", "llama/"]
)
def test_files_that_are_no_models_have_no_name(folder: Path, name: str) -> None:
    with pytest.raises(JanServeError):
        ModelResolver(folder).resolve(name)


HOSTILE = (
    "",
    "../../x",
    "../models/Qwen3-0.6B-Q8_0",
    "..%2fx",
    "..\\x",
    "/etc/passwd",
    "~/x",
    "C:\\x",
    "C:x",
    "a/../../b",
    "a//b",
    "./Qwen3-0.6B-Q8_0",
    "x\0y",
    "x\ny",
    "\x1b[31mred",
    "a" * 300,
    "CON",
    "Qwen3-0.6B-Q8_0.",
    "Qwen3-0.6B-Q8_0 ",
    ".gguf",
    "\ud800",
)


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_hostile_names_find_nothing_and_touch_nothing(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = folder.parent / "x.gguf"
    outside.write_bytes(b"GGUF")
    touched: list[str] = []
    real_stat = Path.stat

    def recording_stat(self: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        touched.append(str(self))
        return real_stat(self, follow_symlinks=follow_symlinks)

    resolver = ModelResolver(folder)
    monkeypatch.setattr(Path, "stat", recording_stat)
    with pytest.raises((InvalidRequest, ModelNotFound)) as caught:
        resolver.resolve(name)
    assert all(path.startswith(str(folder) + os.sep) and ".." not in path for path in touched)
    assert caught.value.message.isprintable() or "\ud800" in name
    caught.value.message.encode("utf-8")


def test_the_configured_default_model(folder: Path, builtin: tuple[str, Path], tmp_path: Path) -> None:
    by_name = ModelResolver(folder, default="big", builtin=builtin)
    assert by_name.resolve(None).name == "big/Big"
    inside = ModelResolver(folder, default=str(folder / "llama/Llama-3.2-3B.gguf"), builtin=builtin)
    assert inside.resolve(None).name == "llama/Llama-3.2-3B"
    elsewhere = tmp_path / "elsewhere" / "Mine.gguf"
    elsewhere.parent.mkdir()
    elsewhere.write_bytes(b"GGUF")
    named = ModelResolver(folder, default=str(elsewhere), builtin=builtin)
    assert named.resolve(None).path == elsewhere
    assert named.resolve("mine").path == elsewhere
    assert named.entries()[0].name == "Mine"
    with pytest.raises(ModelNotFound):
        ModelResolver(folder, default="absent", builtin=builtin)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("{}/absent.gguf", "no file"), ("~/absent.gguf", "no file"), ("./absent.gguf", "no file"), ("../x", "no file"),
        ("{}", "is no file"), ("{}/notes.txt", r"notes\.txt is no GGUF file"),
    ],
)  # fmt: skip
def test_a_default_that_can_only_be_a_file_is_one(folder: Path, given: str, words: str) -> None:
    (folder / "notes.txt").write_text("")
    with pytest.raises(SettingsError, match=words):
        ModelResolver(folder, default=given.format(folder))


def test_default_without_configuration(tmp_path: Path, builtin: tuple[str, Path]) -> None:
    models = tmp_path / "models"
    resolver = ModelResolver(models, builtin=builtin)
    assert resolver.resolve(None).name == "jan-tiny"
    assert resolver.default().is_expected
    models.mkdir()
    (models / "one.gguf").write_bytes(b"GGUF")
    assert resolver.resolve(None).name == "one"
    assert not resolver.default().is_expected
    assert "only model" in resolver.default().reason
    (models / "two.gguf").write_bytes(b"GGUF")
    assert resolver.resolve(None).name == "jan-tiny"
    assert resolver.default().reason == "2 models are in the models folder and none can be served"
    assert not resolver.default().is_expected
    (models / "jan-tiny.gguf").write_bytes(b"GGUF")
    assert resolver.resolve("jan-tiny").path == models / "jan-tiny.gguf"


def test_a_damaged_file_is_no_choice(tmp_path: Path, builtin: tuple[str, Path]) -> None:
    models = tmp_path / "models"
    models.mkdir()
    resolver = ModelResolver(models, builtin=builtin)
    (models / "good.gguf").write_bytes(GgufBytes().build())
    (models / "broken.gguf").write_bytes(b"nonsense")
    found = resolver.default()
    assert found.entry is not None
    assert (found.entry.name, found.reason) == (
        "good",
        "the only model in the models folder that can be served",
    )
    (models / "more.gguf").write_bytes(GgufBytes().build())
    assert resolver.resolve(None).name in ("good", "more")


TEMPLATE = string_key("tokenizer.chat_template", "{{ messages }}")
BASE, CHATS = GgufBytes(), GgufBytes(keys=[TEMPLATE])
EMBEDS = GgufBytes(keys=[TEMPLATE, uint_key("llama.pooling_type", 1)])
Kinds = dict[str, GgufBytes | None]
"""None: a damaged file. The first is the oldest."""


@pytest.mark.parametrize(
    ("kinds", "last", "name", "reason"),
    [
        ({"a": CHATS, "b": CHATS, "c": CHATS}, None, "c", "the newest of 3 models"),
        ({"a": CHATS, "b": CHATS, "c": CHATS}, "b", "b", "used last"),
        ({"a": CHATS, "b": CHATS, "c": BASE}, None, "b", "the newest of 3 models"),
        ({"a": CHATS, "b": BASE, "c": EMBEDS}, "b", "a", "the newest of 3 models"),
        ({"a": CHATS, "b": EMBEDS}, "b", "a", "the newest of 2 models"),
        ({"a": CHATS, "b": CHATS}, "gone", "b", "the newest of 2 models"),
        ({"a": CHATS, "b": None}, None, "a", "the only model in the models folder that can be served"),
        ({"a": CHATS, "b": None}, "b", "a", "the only model in the models folder that can be served"),
        ({"a": BASE, "b": EMBEDS}, None, "a", "the newest of 2 models; none of them chats"),
        ({"a": BASE, "b": BASE, "c": EMBEDS}, "a", "a", "used last; none of them chats"),
        ({"a": EMBEDS, "b": EMBEDS}, None, "b", "the newest of 2 models; none of them chats"),
    ],
)
def test_the_default_of_several_models_is_never_the_built_in_one(
    tmp_path: Path, builtin: tuple[str, Path], kinds: Kinds, last: str | None, name: str, reason: str
) -> None:
    models = tmp_path / "models"
    models.mkdir()
    for age, (each, content) in enumerate(kinds.items()):
        path = models / f"{each}.gguf"
        path.write_bytes(b"nonsense" if content is None else content.build())
        os.utime(path, ns=(age * 10**9, age * 10**9))
    resolver = ModelResolver(models, builtin=builtin, index=ModelIndex(models))
    if last in kinds:
        resolver.note_use(resolver.resolve(last))
    elif last is not None:
        LastModel(models).note(last)
    resolver.note_use(resolver.resolve("jan-tiny"))
    found = ModelResolver(models, builtin=builtin, index=ModelIndex(models)).default()
    assert found.entry is not None
    assert (found.entry.name, found.reason, found.is_expected) == (name, reason, False)


def test_a_note_that_cannot_be_read_now_or_was_not_written_is_not_given_up(tmp_path: Path) -> None:
    last = LastModel(tmp_path)
    with no_descriptors(), pytest.raises(Unavailable):
        assert last.name
    assert last.name is None
    with no_descriptors():
        last.note("b")
    last.note("b")
    assert LastModel(tmp_path).name == "b"


def test_the_default_of_a_server_stays_whatever_it_loads(tmp_path: Path, builtin: tuple[str, Path]) -> None:
    models = tmp_path / "models"
    models.mkdir()
    for age, name in enumerate(("a", "b", "c")):
        (models / f"{name}.gguf").write_bytes(CHATS.build())
        os.utime(models / f"{name}.gguf", ns=(age * 10**9, age * 10**9))
    for start in ("c", "a"):
        resolver = ModelResolver(models, builtin=builtin)
        for name in ("b", "c", "a"):
            assert resolver.resolve(None).name == start
            resolver.note_use(resolver.resolve(name))


def test_a_chosen_model_is_the_default_of_each_process(tmp_path: Path, builtin: tuple[str, Path]) -> None:
    models = tmp_path / "models"
    models.mkdir()
    for age, name in enumerate(("a", "b", "c")):
        (models / f"{name}.gguf").write_bytes(CHATS.build())
        os.utime(models / f"{name}.gguf", ns=(age * 10**9, age * 10**9))
    running, other = (ModelResolver(models, builtin=builtin) for _ in range(2))
    assert running.resolve(None).name == "c"
    other.choose_default("b.gguf")
    running.note_use(running.resolve("a"))
    assert [each.default().reason for each in (running, other)] == ["chosen with `jan-serve use`"] * 2
    assert running.resolve(None).name == "b"
    (models / "b.gguf").unlink()
    assert ModelResolver(models, builtin=builtin).resolve(None).name == "a"
    other.choose_default("jan-tiny")
    assert ModelResolver(models, builtin=builtin).resolve(None).name == "jan-tiny"
    other.choose_default(None)
    assert ModelResolver(models, builtin=builtin).resolve(None).name == "a"
    with pytest.raises(ModelNotFound):
        other.choose_default("nothing")


def test_models_of_the_same_age_have_one_default(tmp_path: Path, builtin: tuple[str, Path]) -> None:
    models = tmp_path / "models"
    models.mkdir()
    for name in ("b", "a", "c"):
        (models / f"{name}.gguf").write_bytes(CHATS.build())
        os.utime(models / f"{name}.gguf", ns=(0, 0))
    assert ModelResolver(models, builtin=builtin).resolve(None).name == "a"


def test_a_configured_template_makes_a_base_model_chat(tmp_path: Path, builtin: tuple[str, Path]) -> None:
    models = tmp_path / "models"
    models.mkdir()
    for age, (name, content) in enumerate({"base": BASE, "chats": CHATS}.items()):
        (models / f"{name}.gguf").write_bytes(content.build())
        os.utime(models / f"{name}.gguf", ns=(-age * 10**9, -age * 10**9))
    assert ModelResolver(models, builtin=builtin).resolve(None).name == "chats"
    names = {"base": ConfiguredNames(has_template=True)}
    resolver = ModelResolver(models, builtin=builtin, names=lambda: names)
    assert resolver.resolve(None).name == "base"
    facts = resolver.effective_facts(resolver.resolve("base"))
    assert not facts.is_base


@pytest.mark.parametrize("content", [b"\xff\x00nonsense", b"", b"a" * 10_000, b"../../etc/passwd"])
def test_a_damaged_note_of_the_last_model_chooses_nothing(
    tmp_path: Path, builtin: tuple[str, Path], content: bytes
) -> None:
    models = tmp_path / "models"
    (models / STATE_FOLDER).mkdir(parents=True)
    for age, name in enumerate(("a", "b")):
        (models / f"{name}.gguf").write_bytes(CHATS.build())
        os.utime(models / f"{name}.gguf", ns=(age * 10**9, age * 10**9))
    for note in ("last-model", "default-model"):
        (models / STATE_FOLDER / note).write_bytes(content)
    assert ModelResolver(models, builtin=builtin).resolve(None).name == "b"


def test_no_model_at_all(tmp_path: Path) -> None:
    resolver = ModelResolver(tmp_path / "absent")
    assert resolver.entries() == ()
    assert resolver.default().entry is None
    with pytest.raises(ModelNotFound):
        resolver.resolve(None)


@pytest.mark.skipif(os.name != "posix", reason="needs symbolic links and FIFOs")
def test_links_and_special_files(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "blob"
    target.write_bytes(b"GGUF")
    (folder / "linked.gguf").symlink_to(target)
    (folder / "dangling.gguf").symlink_to(tmp_path / "nowhere")
    (folder / "loop").symlink_to(folder)
    os.mkfifo(folder / "pipe.gguf")
    names = [entry.name for entry in ModelResolver(folder).entries()]
    assert "linked" in names
    assert not {"dangling", "pipe", "loop/linked"} & set(names)


def test_headers_are_read_once_per_change(builtin: tuple[str, Path], tmp_path: Path) -> None:
    resolver = ModelResolver(tmp_path, builtin=builtin)
    name, path = builtin
    first = resolver.model_file(path, name)
    assert resolver.model_file(path, name) is first
    path.write_bytes(GgufBytes(n_layer=3).build())
    os.utime(path, ns=(1, 1))
    assert resolver.model_file(path, name).n_layer == 3
    path.unlink()
    with pytest.raises(ModelNotFound):
        resolver.model_file(path, name)


def test_a_record_that_lacks_facts_is_completed_once(tmp_path: Path) -> None:
    """As an earlier version wrote it, or a download."""
    template = string_key("tokenizer.chat_template", "a template")
    (tmp_path / "m.gguf").write_bytes(GgufBytes(keys=[template]).build())
    index, asked = ModelIndex(tmp_path), list[str]()
    ModelResolver(tmp_path, index=index).facts(ModelResolver(tmp_path).entries()[0])
    old = index.records()["m"]
    assert old.facts is not None and old.facts.thinks is None
    index.put(replace(old, aliases=("mine",)))

    def thinks(template: str) -> bool:
        asked.append(template)
        return True

    resolver = ModelResolver(tmp_path, index=index, thinks=thinks)
    for _ in range(2):
        [entry] = resolver.entries()
        assert resolver.facts(entry).thinks is True
    assert asked == ["a template"]
    [record] = index.records().values()
    assert (record.aliases, record.facts) == (("mine",), replace(old.facts, thinks=True))


class WatchedLock:
    """Tells of each thread that comes to it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.came = SimpleQueue[None]()

    def __enter__(self) -> None:
        self.came.put(None)
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


@pytest.mark.parametrize("fails", [False, True])
def test_those_who_wait_share_the_next_scan_and_not_the_running_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    resolver, let_go, scans = ModelResolver(tmp_path), threading.Event(), list[int]()

    def scan(_: ModelFolder) -> list[ModelEntry]:
        scans.append(len(scans) + 1)
        if scans[-1] == 1:
            assert let_go.wait(30)
            if fails:
                raise OSError("the disk is gone")
        return [ModelEntry(str(scans[-1]), tmp_path, 0, 0)]

    def number() -> int:
        return int(resolver.entries()[0].name)

    lock = WatchedLock()
    monkeypatch.setattr(resolver, "_scan_lock", lock)
    monkeypatch.setattr(ModelFolder, "entries", scan)
    with ThreadPoolExecutor(6) as threads:
        first = threads.submit(number)
        lock.came.get(timeout=30)
        waiting = [threads.submit(number) for _ in range(5)]
        for _ in waiting:
            lock.came.get(timeout=30)
        let_go.set()
        assert [each.result(30) for each in waiting] == [2] * 5, "the first scan began before their calls"
    error = first.exception()
    assert isinstance(error, OSError) if fails else first.result() == 1
    assert number() == 3


def test_a_projector_that_a_load_could_not_use_gives_no_sight_until_it_changes_or_works(
    tmp_path: Path,
) -> None:
    (tmp_path / "m.gguf").write_bytes(GgufBytes(keys=(uint_key("llama.embedding_length", 64),)).build())
    projector = tmp_path / "mmproj-m.gguf"
    seeing = (key("clip.has_vision_encoder", BOOL, b"\1"),)
    projector.write_bytes(GgufBytes(architecture="clip", keys=seeing, tensors=()).build())
    resolver = ModelResolver(tmp_path)

    def senses() -> tuple[str, ...]:
        found = resolver.projector(resolver.resolve("m"))
        assert found is not None
        return found.senses

    for works_again in (lambda: resolver.note_projector(projector, ""), lambda: os.utime(projector, (1, 1))):
        assert senses() == ("vision",)
        resolver.note_projector(projector, "damaged")
        assert senses() == ()
        works_again()
    assert senses() == ("vision",)
    resolver.note_projector(tmp_path / "gone.gguf", "damaged")
