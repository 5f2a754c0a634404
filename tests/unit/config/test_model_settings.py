"""Tables of models: their schema, mistakes and reload."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from jan_serve.config import ModelBook, engine_settings, load_settings
from jan_serve.config.model_settings import LIVE_KEYS, OWN_KEYS, ModelSettings, key_of
from jan_serve.errors import SettingsError, Unavailable
from tests.unit.config.support import WHOLE
from tests.unit.store.descriptors import no_descriptors

from .test_model_options import MODEL


def test_a_table_overrides_the_options_of_all_models(config_file: Path) -> None:
    config_file.write_text(WHOLE)
    loaded = load_settings({"parallel": "5"})
    table = loaded.models["org/repo/Model-Q4"]
    engine = engine_settings(table.options, MODEL)
    assert (engine.n_ctx, engine.type_k, engine.parallel, engine.placement.n_gpu_layers) == (
        512,
        "q8_0",
        5,
        7,
    )
    assert engine_settings(loaded.settings, MODEL).n_ctx == 4096
    assert (table.options.ttl_s, loaded.settings.ttl_s) == (-1, 600)
    assert (table.aliases, table.pin, table.group) == (("gpt-4o", "local"), True, "large")
    assert table.template == str(config_file.parent / "mine.jinja")
    assert (table.sampling.temperature, table.sampling.top_k, table.sampling.top_p) == (0.5, 20, None)
    assert (table.sampling.max_tokens, table.sampling.stop) == (99, ("</s>",))
    assert [(each.name, each.file, each.scale) for each in table.lora] == [
        ("sql", config_file.parent / "adapters" / "sql.gguf", 1.0),
        ("poet", config_file.parent / "poet.gguf", 0.5),
    ]
    assert table.adapter("SQL") == table.lora[0] and table.adapter("s") is None
    other = loaded.models["other"]
    assert (other.template, other.options.n_ctx) == ("chatml", 4096)


def test_a_draft_model_is_a_file_beside_the_configuration_or_a_name(config_file: Path) -> None:
    config_file.write_text("[models.a]\ndraft_model = 'poet.gguf'\n[models.b]\ndraft_model = 'org/small'\n")
    models = load_settings().models
    drafts = [models[name].options.draft_model for name in ("a", "b")]
    assert drafts == [str(config_file.parent / "poet.gguf"), "org/small"]


def test_live_keys_are_keys(config_file: Path) -> None:
    config_file.write_text(WHOLE)
    assert {*OWN_KEYS, *type(load_settings().settings).model_fields} >= LIVE_KEYS


def test_rows_have_their_lines(config_file: Path) -> None:
    config_file.write_text(WHOLE)
    rows = {key: (value, place) for key, value, place in load_settings().model_rows()}
    assert rows['models."org/repo/Model-Q4".n_ctx'] == ("512", f"{config_file}:6")
    assert rows['models."org/repo/Model-Q4".aliases'] == ("gpt-4o, local", f"{config_file}:9")
    assert rows['models."org/repo/Model-Q4".pin'] == ("true", f"{config_file}:11")
    assert rows['models."org/repo/Model-Q4".lora[1].scale'] == ("0.5", f"{config_file}:27")
    assert rows["models.other.template"] == ("chatml", f"{config_file}:30")


MISTAKES = [
    ("models = 1", r"config\.toml:1: models must be tables"),
    ("[models]\nx = 1", r"config\.toml:2: models: 'x' must be a table"),
    ("[models.x]\n\nn_ctx = 1", r"config\.toml:3: models\.x\.n_ctx must be greater .* 64 \(it is 1\)"),
    ("[models.x]\nn_ctxx = 64", r":2: there is no setting models\.x\.n_ctxx; did you mean 'n_ctx'\?"),
    ("[models.x]\nport = 1", r":2: there is no setting models\.x\.port"),
    ("[models.x]\ndraft = 1", r":2: there is no setting models\.x\.draft"),
    ('[models."a b"]\npin = 1', r':2: models\."a b"\.pin must be a valid boolean'),
    ("[models.x]\naliases = 'a'", r":2: models\.x\.aliases must be a list"),
    ("[models.x]\naliases = ['']", r":2: models\.x\.aliases\[0\] must be 1 to 255"),
    ("[models.x]\nsampling = 1", r":2: models\.x\.sampling must be"),
    ("[models.x.sampling]\ntop_k = true", r":2: models\.x\.sampling\.top_k must be a valid integer"),
    ("[models.x.sampling]\ntemperature = nan", r":2: models\.x\.sampling\.temperature must be"),
    ("[models.x.sampling]\nheat = 1", r":2: there is no setting models\.x\.sampling\.heat"),
    ("[models.x.sampling]\nstop = ['']", r":2: models\.x\.sampling\.stop\[0\] must have at least 1"),
    ("[[models.x.lora]]\nfile = 'poet.gguf'", r":1: models\.x\.lora\[0\]\.name is missing"),
    ("[[models.x.lora]]\nname = 'a b'", r":2: models\.x\.lora\[0\]\.name must be 1 to 64 letters"),
    ("[[models.x.lora]]\nname = 'a'\nfile = 'no'", r":3: models\.x\.lora\[0\]\.file: there is no file"),
    ("[[models.x.lora]]\nname = 'a'\nfile = 'poet.gguf'\nscale = 101", r":4: .*scale must be less"),
    (
        "[models.x]\nlora = [{name='a', file='poet.gguf'}, {name='A', file='poet.gguf'}]",
        r":1: models\.x two LoRA adapters are named 'a'",
    ),
    (
        "[models.x]\nflash_attn = 'off'\ntype_v = 'q8_0'",
        r":3: models\.x\.type_v must be .* flash_attn is off: .* \(it is 'q8_0'\)",
    ),
    (
        "flash_attn = 'off'\n[models.x]\ntype_v = 'q4_0'",
        r":3: models\.x\.type_v must be .* flash_attn is off",
    ),
    (
        "type_v = 'q8_0'\n[models.x]\nflash_attn = 'off'",
        r":2: models\.x\.type_v must be .* flash_attn is off",
    ),
    (
        "flash_attn = 'off'\n[models.x]\ndeterministic = true",
        r":3: models\.x\.deterministic must be off where flash_attn is off",
    ),
    ("[models.x]\ntemplate = 'no.jinja'", r":2: models\.x\.template: there is no file .*no\.jinja"),
    ("[models.x]\naliases = ['y']\n[models.Y]\npin = true", r":2: .*'y' is a name of 'Y' already"),
    ("[models.x]\naliases = ['a']\n[models.y]\naliases = ['b', 'A']", r":4: .*'A' is a name of 'x' already"),
]


@pytest.mark.parametrize(("text", "message"), MISTAKES)
def test_mistakes_have_their_line_and_key(config_file: Path, text: str, message: str) -> None:
    config_file.write_text(text)
    with pytest.raises(SettingsError, match=message):
        load_settings()


def test_every_mistake_of_the_tables_is_reported(config_file: Path) -> None:
    config_file.write_text("[models.x]\nn_ctx = 1\npin = 1\n[models.y]\nparallel = 0\n")
    with pytest.raises(SettingsError) as caught:
        load_settings()
    assert [line.split(":")[1] for line in caught.value.message.splitlines()] == ["2", "3", "5"]


def test_templates_by_flag(config_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flag says the same thing as a table, and wins."""
    config_file.write_text("[models.a]\ntemplate = 'mine.jinja'\nn_ctx = 64\n")
    monkeypatch.chdir(tmp_path / "adapters")
    (tmp_path / "adapters" / "flag.jinja").write_text("y")
    models = load_settings({"chat_template": ["a=flag.jinja", "b=tool_use", "c=x=y"]}).models
    assert {name: table.template for name, table in models.items()} == {
        "a": str(tmp_path / "adapters" / "flag.jinja"),
        "b": "tool_use",
        "c": "x=y",
    }
    assert models["a"].options.n_ctx == 64
    for wrong in ("a", "a=", "=x", "a=/no/such/file", "a=missing.jinja"):
        with pytest.raises(SettingsError, match="chat_template"):
            load_settings({"chat_template": [wrong]})


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (("models", "a/b", "lora", 0, "name"), 'models."a/b".lora[0].name'),
        (("models", "é"), 'models."é"'),
        (("models", 'a"b\\c\n'), 'models."a\\"b\\\\c\\n"'),
        (("models", ""), 'models.""'),
    ],
)
def test_keys_as_one_writes_them(path: tuple[str | int, ...], text: str) -> None:
    assert key_of(path) == text


@pytest.mark.parametrize("name", ["x" * 300, "x" * 300 + ".jinja", "a\\u0000b.jinja"])
def test_a_name_that_no_file_can_have_is_no_file(config_file: Path, name: str) -> None:
    config_file.write_text("")
    running = load_settings().book()
    for key in (
        f'template = "{name}"',
        f'draft_model = "{name}"',
        f'lora = [{{name = "a", file = "{name}"}}]',
    ):
        config_file.write_text(f"[models.x]\n{key}\n")
        try:
            load_settings()
        except SettingsError as error:
            assert "models.x" in error.message
        assert isinstance(running.tables(), dict)


def rewrite(path: Path, text: str) -> None:
    """Write the file and give it a time of change of its own, however fast the test is."""
    before = path.stat().st_mtime_ns
    path.write_text(text)
    os.utime(path, ns=(before + 1_000_000_000, before + 1_000_000_000))


def test_the_book_follows_the_file(config_file: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    config_file.write_text("n_ctx = 128\n[models.a]\nparallel = 2\n")
    book = load_settings().book()
    before = book.tables()
    assert book.tables() is before and book.common().n_ctx == 128
    rewrite(config_file, "n_ctx = 128\n[models.a]\nparallel = 4\npin = true\n[models.b]\ngroup = 'g'\n")
    tables = book.tables()
    assert (tables["a"].options.parallel, tables["a"].options.n_ctx, tables["a"].pin) == (4, 128, True)
    assert tables["b"].group == "g"
    assert "models.a changed: pin; they apply from the next request" in caplog.text
    assert "models.a changed: parallel; they apply when the model is reloaded" in caplog.text
    assert "top level" not in caplog.text


def test_a_new_table_changes_only_its_own_keys(config_file: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    config_file.write_text("n_ctx = 128\n")
    book = load_settings().book()
    rewrite(config_file, "n_ctx = 128\n[models.a]\naliases = ['x']\n")
    assert book.tables()["a"].aliases == ("x",)
    rewrite(config_file, "n_ctx = 128\n")
    assert book.tables() == {}
    assert [record.message for record in caplog.records] == 2 * [
        "settings of models.a changed: aliases; they apply from the next request"
    ]


def test_a_file_that_was_not_there_is_read(config_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config_file.unlink()
    monkeypatch.delenv("JAN_SERVE_CONFIG")
    monkeypatch.setattr("jan_serve.config.settings_loader.default_config_file", lambda: config_file)
    book = load_settings().book()
    assert book.tables() == {}
    config_file.write_text("[models.a]\naliases = ['x']\n")
    assert book.tables()["a"].aliases == ("x",)


def test_a_mistake_leaves_the_book_as_it_was(config_file: Path, caplog: pytest.LogCaptureFixture) -> None:
    config_file.write_text("[models.a]\nparallel = 2\n")
    book = load_settings().book()
    for text in ("[models.a]\nparallel = 0\n", "[models.a\n"):
        rewrite(config_file, text)
        assert book.tables()["a"].options.parallel == 2
    assert len(caplog.records) == 2 and f"{config_file}:2: models.a.parallel" in caplog.text
    book.tables()
    assert len(caplog.records) == 2
    rewrite(config_file, "port = 3\n")
    assert book.tables() == {}
    assert "top level changed; they apply after a restart" in caplog.text
    config_file.unlink()
    assert book.tables() == {}


def test_a_book_without_a_file(config_file: Path) -> None:
    settings = load_settings().settings
    assert ModelBook(settings).tables() == {}
    table = ModelSettings(options=settings)
    assert ModelBook(settings, {"m": table}).tables() == {"m": table}


def test_a_change_that_could_not_be_read_for_lack_of_descriptors_is_read_later(config_file: Path) -> None:
    config_file.write_text("[models.a]\nparallel = 2\n")
    book = load_settings().book()
    rewrite(config_file, "[models.a]\nparallel = 3\n")
    with no_descriptors(), pytest.raises(Unavailable):
        book.tables()
    assert book.tables()["a"].options.parallel == 3
