"""What the supervisor and generation are told of a model: its file, its settings, and changes of either."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jan_serve.config import load_settings, model_settings
from jan_serve.errors import InvalidModel, SettingsError
from jan_serve.generation.profiles import TemplateOverride
from jan_serve.ipc.messages import AdapterFile
from jan_serve.store.files import file_stamp
from jan_serve.supervisor.models.eviction import Retention
from jan_serve.wiring import user_files
from jan_serve.wiring.model_sources import ModelSources
from jan_serve.wiring.parts import build_resolver
from models.recipe.lora_file import llama_shapes, write_lora
from models.recipe.projector_fixtures import write_tiny_projector
from tests.support.engine.fake_client import fake_facts
from tests.unit.store.gguf_builder import GgufBytes, uint_key

WIDTH = 32
CONFIG = """\
models_dir = "."
n_ctx = 4096
ttl_s = 5

[models.one]
n_ctx = 128
ttl_s = -1
pin = true
group = "g"
template = "t.jinja"
aliases = ["alias"]
sampling = { temperature = 0.5, stop = ["x"] }
lora = [{ name = "sql", file = "adapters/sql.gguf", scale = 0.5 }]
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration beside two models and what it names."""
    for name in ("one", "two"):
        (tmp_path / f"{name}.gguf").write_bytes(GgufBytes().build())
    (tmp_path / "adapters").mkdir()
    write_lora(tmp_path / "adapters" / "sql.gguf", llama_shapes())
    (tmp_path / "t.jinja").write_text("T")
    path = tmp_path / "config.toml"
    path.write_text(CONFIG)
    monkeypatch.setenv("JAN_SERVE_CONFIG", str(path))
    return path


@pytest.fixture
def sources(config: Path) -> ModelSources:
    loaded = load_settings()
    book = loaded.book()
    return ModelSources(build_resolver(loaded.settings, book), loaded.settings, book)


def write_wide_model(path: Path) -> None:
    path.write_bytes(GgufBytes(keys=(uint_key("llama.embedding_length", WIDTH),)).build())


def touch(path: Path, text: str | None = None) -> None:
    """Write a file, or leave it, with a time of change of its own."""
    before = path.stat().st_mtime_ns
    if text is not None:
        path.write_text(text)
    os.utime(path, ns=(before + 1_000_000_000, before + 1_000_000_000))


def test_a_model_with_a_table_and_one_without(sources: ModelSources, tmp_path: Path) -> None:
    one, two = sources.resolve("alias"), sources.resolve("two")
    a, b = one.source, two.source
    assert (a.name, b.name) == ("one", "two")
    assert one.retention == Retention(ttl_s=-1, pinned=True, group="g")
    assert two.retention == Retention(ttl_s=5)
    engine = sources.needs(a).settings
    path = str(tmp_path / "adapters" / "sql.gguf")
    assert (engine.n_ctx, engine.adapters) == (128, (AdapterFile(name="sql", path=path, scale=0.5),))
    assert (sources.needs(b).settings.n_ctx, sources.needs(b).settings.adapters) == (4096, ())
    profile = sources.profiles()("one", None)
    assert profile.template == TemplateOverride("t.jinja", "T")
    assert profile.defaults == {"temperature": 0.5, "stop": ("x",)}
    assert (sources.profiles()("two", None).template, sources.profiles()("two", None).defaults) == (None, {})
    size = (tmp_path / "adapters" / "sql.gguf").stat().st_size
    with_adapter = sources.needs(a).footprint.working
    touch(tmp_path / "config.toml", "".join(line for line in CONFIG.splitlines(True) if "lora" not in line))
    assert with_adapter == sources.needs(a).footprint.working + size


def test_loops_are_stopped_as_set_for_all_models_and_for_one(sources: ModelSources, tmp_path: Path) -> None:
    def actions() -> list[str]:
        profile_of = sources.profiles()
        return [profile_of(name, None).stop_loops for name in ("one", "two")]

    assert actions() == ["off", "off"]
    table = "[models.one]\n"
    touch(tmp_path / "config.toml", CONFIG.replace(table, f'{table}stop_loops = "escape"\n'))
    assert actions() == ["escape", "off"]


def test_a_model_that_nobody_named_yet_has_its_template(sources: ModelSources) -> None:
    """Lists show what models can do, without resolving them."""
    for _ in range(2):
        assert sources.profiles()("one", None).template == TemplateOverride("t.jinja", "T")
        assert sources.profiles()("one", None).defaults == {"temperature": 0.5, "stop": ("x",)}
        assert sources.profiles()("two", None).template is None
    assert sources.profiles()("absent", None).template is None


def test_many_models_cost_one_look_at_the_configuration(
    sources: ModelSources, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources.profiles()("one", None)
    looked_at: list[Path] = []

    def watch(path: Path) -> tuple[int, int] | None:
        looked_at.append(path)
        return file_stamp(path)

    for module in (model_settings, user_files):
        monkeypatch.setattr(module, "file_stamp", watch)
    profile_of = sources.profiles()
    for _ in range(100):
        assert profile_of("one", "alias").template == TemplateOverride("t.jinja", "T")
        assert profile_of("two", None).template is None
    assert sorted(path.name for path in looked_at) == ["config.toml", "t.jinja"]


@pytest.mark.parametrize(
    ("name", "adapter"), [("one", None), ("alias:sql", "sql"), ("sql", "sql"), ("two", None)]
)
def test_the_adapter_of_a_name_is_no_other_source(
    sources: ModelSources, name: str, adapter: str | None
) -> None:
    """A model with an adapter is loaded once, whatever names it is asked for by."""
    resolved = sources.resolve(name)
    assert resolved.source == sources.resolve(resolved.source.name).source
    assert resolved.adapter == adapter


@pytest.mark.parametrize(
    ("old", "new", "again"),
    [
        ("n_ctx = 128", "n_ctx = 256", True),
        ("scale = 0.5", "scale = 0.25", True),
        ('name = "sql"', 'name = "other"', True),
        ("ttl_s = -1", "ttl_s = 1\nmlock = true", True),
        ("ttl_s = -1", "ttl_s = 1", False),
        ("pin = true", "pin = false", False),
        ("temperature = 0.5", "temperature = 0.7", False),
        ('template = "t.jinja"', 'template = "chatml"', False),
        ('aliases = ["alias"]', 'aliases = ["alias", "more"]', False),
        ("[models.one]", "# nothing new\n[models.one]", False),
    ],
)
def test_changes_that_reload_a_model(
    sources: ModelSources, config: Path, old: str, new: str, again: bool
) -> None:
    before = sources.resolve("one").source
    other = sources.resolve("two").source
    touch(config, CONFIG.replace(old, new))
    assert (sources.resolve("one").source != before) is again
    assert sources.resolve("two").source == other


def test_a_changed_adapter_has_its_model_loaded_anew(sources: ModelSources, tmp_path: Path) -> None:
    before = sources.resolve("one").source
    touch(tmp_path / "adapters" / "sql.gguf")
    assert sources.resolve("one").source.revision != before.revision


def test_an_adapter_that_does_not_fit_is_refused_before_a_worker_starts(
    sources: ModelSources, tmp_path: Path
) -> None:
    write_lora(tmp_path / "adapters" / "sql.gguf", llama_shapes(), architecture="qwen2")
    with pytest.raises(InvalidModel, match="The LoRA adapter `sql` cannot be used"):
        sources.needs(sources.resolve("one").source)


def test_a_template_that_cannot_be_read_is_a_mistake_at_the_start(config: Path, tmp_path: Path) -> None:
    (tmp_path / "t.jinja").write_bytes(b"\xff")
    loaded = load_settings()
    with pytest.raises(SettingsError, match=r"t\.jinja is not UTF-8"):
        ModelSources(build_resolver(loaded.settings), loaded.settings, loaded.book())


def test_an_adapter_in_the_models_folder_is_no_model(sources: ModelSources) -> None:
    names = {source.name for source in sources.list()}
    assert {"one", "two"} <= names
    assert not any("sql" in name for name in names)


def test_a_projector_beside_a_model_is_its_own_and_a_reason_to_reload(
    config: Path, sources: ModelSources
) -> None:
    folder = config.parent
    for name in ("one", "two"):
        write_wide_model(folder / f"{name}.gguf")
    before = sources.resolve("two").source
    least = sources.needs(before).footprint
    assert before.projector is None
    write_tiny_projector(folder / "mmproj-two.gguf", "mlp", n_embd=WIDTH)
    write_tiny_projector(folder / "mmproj-one.gguf", "mlp", n_embd=WIDTH + 1)
    after = sources.resolve("two").source
    assert after.projector == str(folder / "mmproj-two.gguf")
    assert after.revision != before.revision
    needs = sources.needs(after)
    assert needs.settings.projector == after.projector
    assert needs.footprint.working > least.working
    assert sources.resolve("one").source.projector is None
    assert [model.name for model in sources.list()] == ["one", "two", "jan-tiny"]


def test_a_configured_projector_must_fit(config: Path, sources: ModelSources) -> None:
    folder = config.parent
    write_wide_model(folder / "two.gguf")
    write_tiny_projector(folder / "mmproj-two.gguf", "mlp", n_embd=WIDTH)
    write_tiny_projector(folder / "other.gguf", "mlp", n_embd=WIDTH + 1)
    touch(config, CONFIG + '[models.two]\nprojector = "none"\n')
    assert sources.resolve("two").source.projector is None
    touch(config, CONFIG + '[models.two]\nprojector = "mmproj-two.gguf"\n')
    assert sources.resolve("two").source.projector == str(folder / "mmproj-two.gguf")
    touch(config, CONFIG + '[models.two]\nprojector = "other.gguf"\n')
    with pytest.raises(InvalidModel, match=r"other.gguf is a projector for models of width"):
        sources.needs(sources.resolve("two").source)


def test_a_projector_that_a_load_could_not_use_is_no_sight_until_one_can(
    config: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = config.parent
    write_wide_model(folder / "two.gguf")
    write_tiny_projector(folder / "mmproj-two.gguf", "mlp", n_embd=WIDTH)
    loaded = load_settings()
    resolver = build_resolver(loaded.settings, loaded.book())
    sources = ModelSources(resolver, loaded.settings, loaded.book())
    source = sources.resolve("two").source

    def senses() -> tuple[str, ...]:
        found = resolver.projector(resolver.resolve("two"))
        assert found is not None
        return found.senses

    assert senses() == ("vision",)
    sources.loaded(source, fake_facts(projector_fault="it is damaged"))
    assert senses() == ()
    assert sources.resolve("two").source == source
    assert sources.needs(source).settings.projector == source.projector
    [record] = caplog.records
    assert (record.levelname, record.getMessage()) == (
        "WARNING",
        "two is served for text only: it is damaged",
    )
    sources.loaded(source, fake_facts(modalities=("vision",)))
    assert senses() == ("vision",)
    assert caplog.records == [record]


def test_a_projector_of_another_width_is_named_at_the_load(
    config: Path, sources: ModelSources, caplog: pytest.LogCaptureFixture
) -> None:
    folder = config.parent
    write_wide_model(folder / "two.gguf")
    write_tiny_projector(folder / "mmproj-two.gguf", "mlp", n_embd=WIDTH + 1)
    source = sources.resolve("two").source
    sources.loaded(source, fake_facts(n_embd=WIDTH))
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        (
            "WARNING",
            "two is served for text only: mmproj-two.gguf is for models of the width 33, and this one has 32",
        )
    ]
    sources.loaded(sources.resolve("one").source, fake_facts())
    assert len(caplog.records) == 1


def test_the_model_that_wrote_text_last_is_the_default(sources: ModelSources, config: Path) -> None:
    for name in ("two", "one"):
        sources.loaded(sources.resolve(name).source, fake_facts())
        found = build_resolver(load_settings().settings).default()
        assert found.entry is not None
        assert (found.entry.name, found.reason) == (name, "used last; none of them chats")
    sources.loaded(sources.resolve("two").source, fake_facts(is_embedding_model=True))
    sources.loaded(sources.resolve("jan-tiny").source, fake_facts())
    found = build_resolver(load_settings().settings).default()
    assert found.entry is not None and found.entry.name == "one"
