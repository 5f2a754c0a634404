"""The `[models."NAME"]` tables of the configuration file: their schema, their mistakes, and their reload."""

from __future__ import annotations

import json
import logging
import os
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Self, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator
from pydantic_core import ErrorDetails

from jan_serve.config.config_file import ConfigFile, read_config_file
from jan_serve.config.fields import brief, near_key, sentence
from jan_serve.config.model_options import ModelOptions
from jan_serve.config.settings import Settings
from jan_serve.core.models import MAX_ADAPTERS
from jan_serve.errors import SettingsError
from jan_serve.store.files import file_stamp, user_path

MAX_ALIASES: Final = 64
MAX_SCALE: Final = 100.0
LIVE_OPTIONS: Final = frozenset({"ttl_s", "stop_loops"})
"""Model options that change without reloading the model."""

LIVE_KEYS: Final = frozenset({"aliases", "template", "sampling", "pin", "group"}) | LIVE_OPTIONS
"""Table keys that apply from the next request. Any other change reloads the model then."""

_STRICT: Final = ConfigDict(
    frozen=True,
    extra="forbid",
    protected_namespaces=(),
    strict=True,
    hide_input_in_errors=True,
    defer_build=True,
)
_ADAPTER_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}\Z")


def _name_of_adapter(name: str) -> str:
    if not _ADAPTER_NAME.match(name):
        raise ValueError("must be 1 to 64 letters, digits and `_`, `.`, `-`, and not begin with `.` or `-`")
    return name


def _model_name(name: str) -> str:
    if not name or len(name) > 255 or not name.isprintable() or name != name.strip():
        raise ValueError("must be 1 to 255 printable characters without blanks around them")
    return name


Name = Annotated[str, AfterValidator(_model_name)]
Float = Annotated[float, Field(allow_inf_nan=False)]


class SamplingSettings(BaseModel):
    """Sampling defaults of a model, which replace those of every API. None: the API's default.
    The fields are those of core.request.SamplingParams and StopConditions."""

    model_config = _STRICT

    temperature: Annotated[Float | None, Field(ge=0, le=100, description="0 is greedy.")] = None
    top_k: Annotated[int | None, Field(ge=0, le=(1 << 31) - 1, description="0 is off.")] = None
    top_p: Annotated[Float | None, Field(ge=0, le=1, description="1 is off.")] = None
    min_p: Annotated[Float | None, Field(ge=0, le=1, description="0 is off.")] = None
    typical_p: Annotated[Float | None, Field(gt=0, le=1, description="1 is off.")] = None
    repeat_penalty: Annotated[Float | None, Field(gt=0, le=100, description="1 is off.")] = None
    repeat_last_n: Annotated[
        int | None,
        Field(
            ge=-1, le=(1 << 31) - 1, description="Window of the penalties in tokens; -1 is the whole context."
        ),
    ] = None
    presence_penalty: Annotated[Float | None, Field(ge=-2, le=2)] = None
    frequency_penalty: Annotated[Float | None, Field(ge=-2, le=2)] = None
    mirostat_mode: Annotated[int | None, Field(ge=0, le=2, description="0 is off.")] = None
    mirostat_tau: Annotated[Float | None, Field(ge=0, le=10)] = None
    mirostat_eta: Annotated[Float | None, Field(ge=0.001, le=1)] = None
    seed: Annotated[int | None, Field(ge=0, le=(1 << 32) - 1)] = None
    max_tokens: Annotated[
        int | None, Field(ge=1, le=(1 << 31) - 1, description="Maximum number of tokens to generate.")
    ] = None
    stop: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=1024)], ...] | None,
        Field(max_length=64, strict=False, description="Strings that end an answer."),
    ] = None


class LoraSettings(BaseModel):
    """A LoRA adapter that is loaded with the model. scale: the default for requests that select it."""

    model_config = _STRICT

    name: Annotated[
        str,
        AfterValidator(_name_of_adapter),
        Field(description="Its name in requests: letters, digits, `_`, `.`, `-`."),
    ]
    file: Annotated[Path, Field(strict=False, description="The GGUF file of the adapter.")]
    scale: Annotated[
        Float, Field(ge=-MAX_SCALE, le=MAX_SCALE, description="Default scale; a request can set another.")
    ] = 1.0


class ModelSettings(BaseModel):
    """One table. options: the table's model options over those of all models.
    template: the absolute path of a Jinja file, or the name of a template."""

    model_config = _STRICT

    options: Annotated[ModelOptions, Field(strict=False)]
    aliases: Annotated[
        tuple[Name, ...],
        Field(max_length=MAX_ALIASES, strict=False, description="Additional names that requests may use."),
    ] = ()
    template: Annotated[
        str | None,
        Field(
            min_length=1,
            description="The chat template: a Jinja file, the name of another template in the GGUF file, or `chatml`.",
        ),
    ] = None
    # Made on use: it builds the validator.
    sampling: SamplingSettings = Field(
        default_factory=SamplingSettings, strict=False, description="Defaults for requests; see below."
    )
    lora: Annotated[
        tuple[LoraSettings, ...],
        Field(max_length=MAX_ADAPTERS, strict=False, description="LoRA adapters; see below."),
    ] = ()
    projector: Annotated[
        str | None,
        Field(
            min_length=1,
            description="The GGUF file (mmproj) through which the model sees or hears, or `none`. Default: the one in"
            " the model's folder that fits it.",
        ),
    ] = None
    pin: Annotated[bool, Field(description="Never evict the model.")] = False
    group: Annotated[
        str | None,
        Field(min_length=1, max_length=64, description="Models in the same group are never loaded together."),
    ] = None

    @model_validator(mode="after")
    def _check_adapters(self) -> Self:
        names = [adapter.name.casefold() for adapter in self.lora]
        duplicate = next((name for name in names if names.count(name) > 1), None)
        if duplicate is not None:
            raise ValueError(f"two LoRA adapters are named {duplicate!r}")
        return self

    def adapter(self, name: str) -> LoraSettings | None:
        """The adapter of this name, ignoring case."""
        return next((each for each in self.lora if each.name.casefold() == name.casefold()), None)


OWN_KEYS: Final = tuple(name for name in ModelSettings.model_fields if name != "options")
"""Table keys that are not model options."""


def model_settings(table: Mapping[str, Any], common: ModelOptions, folder: Path) -> ModelSettings:
    """The settings of one table over those of all models. Paths are relative to `folder`.
    Raises ValidationError, whose locations begin with `options` for model options and unknown keys."""
    own: dict[str, Any] = {key: value for key, value in table.items() if key in OWN_KEYS}
    options = {key: value for key, value in table.items() if key not in OWN_KEYS}
    defaults = {name: getattr(common, name) for name in ModelOptions.model_fields}
    if isinstance(own.get("template"), str):
        own["template"] = template_value(own["template"], folder)
    projector = own.get("projector")
    if isinstance(projector, str) and projector != "none":
        own["projector"] = str(folder / user_path(projector))
    draft = options.get("draft_model")
    if isinstance(draft, str) and os.path.isfile(folder / user_path(draft)):
        options["draft_model"] = str(folder / user_path(draft))
    settings = ModelSettings.model_validate({"options": defaults | options, **own})
    adapters = tuple(
        each.model_copy(update={"file": folder / user_path(each.file)}) for each in settings.lora
    )
    return settings.model_copy(update={"lora": adapters})


def template_value(value: str, folder: Path) -> str:
    """The absolute path if the value is a file or looks like one, else the value itself."""
    relative = user_path(value)
    path = folder / relative
    return str(path) if len(relative.parts) > 1 or relative.suffix or os.path.isfile(path) else value


MODELS_KEY: Final = "models"
MAX_TABLES: Final = 1000
MASK: Final = "********"

_KEYS_OF: Final[Mapping[str, Iterable[str]]] = {
    "sampling": SamplingSettings.model_fields,
    "lora": LoraSettings.model_fields,
    "options": (*OWN_KEYS, *ModelOptions.model_fields),
}


def model_tables(file: ConfigFile, common: ModelOptions) -> dict[str, ModelSettings]:
    """Tables by NAME, over the options of all models. Raises SettingsError, one line per mistake."""
    raw = file.values.get(MODELS_KEY, {})
    if not isinstance(raw, dict):
        raise SettingsError(f'{file.place_of(MODELS_KEY)}: {MODELS_KEY} must be tables: [models."NAME"]')
    tables = cast(dict[str, Any], raw)
    if len(tables) > MAX_TABLES:
        raise SettingsError(
            f"{file.place_of(MODELS_KEY)}: {len(tables)} tables of models are over {MAX_TABLES}"
        )
    found: dict[str, ModelSettings] = {}
    mistakes: list[str] = []
    for name, table in tables.items():
        if not isinstance(table, dict):
            mistakes.append(
                f'{file.place_of(MODELS_KEY, name)}: models: {name!r} must be a table: [models."NAME"]'
            )
            continue
        values = cast(dict[str, Any], table)
        try:
            found[name] = model_settings(values, common, file.path.parent)
        except ValidationError as error:
            mistakes += [_mistake(file, name, values, problem) for problem in error.errors(include_url=False)]
        else:
            mistakes += _missing_files(file, name, found[name])
    mistakes += _shared_names(file, found)
    if mistakes:
        raise SettingsError("\n".join(dict.fromkeys(mistakes)))
    return found


def with_templates(
    tables: Mapping[str, ModelSettings], overrides: Iterable[str], common: ModelOptions
) -> dict[str, ModelSettings]:
    """The tables with their `template` replaced by `--chat-template MODEL=FILE|NAME`. Raises SettingsError."""
    result = dict(tables)
    for item in overrides:
        name, _, value = item.partition("=")
        if not name or not value:
            raise SettingsError(f"chat_template: {item!r} is not MODEL=FILE or MODEL=NAME")
        template = template_value(value, Path.cwd())
        if Path(template).is_absolute() and not os.path.isfile(template):
            raise SettingsError(f"chat_template: there is no file {template}")
        table = result.get(name) or ModelSettings(options=common)
        result[name] = table.model_copy(update={"template": template})
    return result


def model_rows(file: ConfigFile) -> list[tuple[str, str, str]]:
    """(key, value, location) of every value in the tables of a file that `model_tables` accepted."""
    rows: list[tuple[str, str, str]] = []

    def add(path: tuple[str | int, ...], value: Any) -> None:
        inner: list[tuple[str | int, Any]] | None = None
        if isinstance(value, dict):
            inner = list(cast(dict[str, Any], value).items())
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            inner = list(enumerate(cast(list[Any], value)))
        if inner is None:
            rows.append((key_of(path), shown(value), file.place_of(*path)))
            return
        for key, part in inner:
            add((*path, key), part)

    add((MODELS_KEY,), file.values.get(MODELS_KEY, {}))
    return rows


def key_of(path: Iterable[str | int]) -> str:
    """A key in TOML notation: `models."a/b".lora[0].scale`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
            continue
        bare = part.replace("_", "").replace("-", "").isalnum() and part.isascii()
        text += ("." if text else "") + (part if bare else json.dumps(part, ensure_ascii=False))
    return text


def _mistake(file: ConfigFile, name: str, table: Mapping[str, Any], problem: ErrorDetails) -> str:
    location = tuple(problem["loc"])
    path = (MODELS_KEY, name, *(location[1:] if location[:1] == ("options",) else location))
    line, key = file.place_of(*path), key_of(path)
    if problem["type"] == "extra_forbidden":
        kind = location[0] if len(location) > 1 else "options"
        return f"{line}: there is no setting {key}{near_key(str(path[-1]), _KEYS_OF[str(kind)])}"
    if problem["type"] == "missing":
        return f"{line}: {key} is missing"
    value: Any = table
    for part in path[2:]:
        try:
            value = value[part]
        except (LookupError, TypeError):
            value = table
            break
    shown = "" if value is table else f" (it is {brief(value)})"
    return f"{line}: {key} {sentence(problem['msg'])}{shown}"


def _missing_files(file: ConfigFile, name: str, table: ModelSettings) -> Iterable[str]:
    if table.template is not None and Path(table.template).is_absolute():
        yield from _missing(file, (MODELS_KEY, name, "template"), Path(table.template))
    for number, adapter in enumerate(table.lora):
        yield from _missing(file, (MODELS_KEY, name, "lora", number, "file"), adapter.file)


def _missing(file: ConfigFile, path: tuple[str | int, ...], wanted: Path) -> Iterable[str]:
    if not os.path.isfile(wanted):
        yield f"{file.place_of(*path)}: {key_of(path)}: there is no file {wanted}"


def _shared_names(file: ConfigFile, tables: Mapping[str, ModelSettings]) -> Iterable[str]:
    """Rejects an alias that two tables share or that names another table: it would be ambiguous."""
    owners = {name.casefold(): name for name in tables}
    for name, table in tables.items():
        for number, alias in enumerate(table.aliases):
            path = (MODELS_KEY, name, "aliases", number)
            owner = owners.setdefault(alias.casefold(), name)
            if owner != name:
                yield f"{file.place_of(*path)}: {key_of(path)}: {alias!r} is a name of {owner!r} already"


def shown(value: Any) -> str:
    """A value of a setting for people. Secrets are masked."""
    if isinstance(value, SecretStr):
        return MASK
    if isinstance(value, list | tuple):
        return ", ".join(map(shown, cast(Sequence[Any], value)))
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)


logger = logging.getLogger(__name__)


class ModelBook:
    """The settings of single models. Thread-safe; each call costs one stat of the file.
    Changes of the server's settings, at the top level of the file, are logged and apply after a restart."""

    def __init__(
        self,
        settings: Settings,
        models: Mapping[str, ModelSettings] | None = None,
        file: ConfigFile | None = None,
    ) -> None:
        """models: the tables read with the settings. file: their source, which is watched for changes."""
        self._settings = settings
        tables = with_templates({}, settings.chat_template, settings) if models is None else models
        self._tables: Mapping[str, ModelSettings] = dict(tables)
        self._path = file.path if file is not None else None
        self._lock = threading.Lock()
        self._stamp = file_stamp(self._path) if self._path is not None else None
        self._top_level = _top_level(file) if file is not None else {}

    def tables(self) -> Mapping[str, ModelSettings]:
        """Settings by table name. A mistake in the file is logged, and the previous tables stay in use.

        Raises Unavailable if no file can be opened now.
        """
        with self._lock:
            if self._path is not None and (stamp := file_stamp(self._path)) != self._stamp:
                self._reload(self._path)
                self._stamp = stamp  # last: what could not be read for lack of descriptors is read again
            return self._tables

    def common(self) -> ModelOptions:
        """The options of models without a table."""
        return self._settings

    def _reload(self, path: Path) -> None:
        try:
            file = read_config_file(path, required=False)
            read = model_tables(file, self._settings)
            tables = with_templates(read, self._settings.chat_template, self._settings)
        except SettingsError as error:
            logger.error("the settings of models are unchanged because of a mistake: %s", error)
            return
        common = ModelSettings(options=self._settings)
        for line in _changes(self._tables, tables, common):
            logger.info("%s", line)
        self._tables = tables
        if _top_level(file) != self._top_level:
            logger.warning("%s: settings at the top level changed; they apply after a restart", file.path)
        self._top_level = _top_level(file)


def _top_level(file: ConfigFile) -> dict[str, Any]:
    return {name: value for name, value in file.values.items() if name != MODELS_KEY}


def _changes(
    before: Mapping[str, ModelSettings], after: Mapping[str, ModelSettings], common: ModelSettings
) -> list[str]:
    """Log lines: the changed keys, and when they apply. common: of models without a table."""
    lines: list[str] = []
    for name in sorted({*before, *after}):
        old, new = _flat(before.get(name, common)), _flat(after.get(name, common))
        keys = [key for key in new if old[key] != new[key]]
        for live, when in ((True, "from the next request"), (False, "when the model is reloaded")):
            if some := ", ".join(key for key in keys if (key in LIVE_KEYS) == live):
                lines.append(f"settings of {key_of((MODELS_KEY, name))} changed: {some}; they apply {when}")
    return lines


def _flat(settings: ModelSettings) -> dict[str, Any]:
    own = {name: getattr(settings, name) for name in ModelSettings.model_fields if name != "options"}
    return own | {name: getattr(settings.options, name) for name in ModelOptions.model_fields}
