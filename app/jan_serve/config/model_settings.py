"""Schema of `[models."NAME"]` in the configuration file: settings of one model.
NAME is a full name of the model: in the models folder, the file name, `repo:quant` or an alias, but not a prefix."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from jan_serve.config.model_options import ModelOptions
from jan_serve.core.models import MAX_ADAPTERS
from jan_serve.store.files import user_path

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
    The fields are those of core.sampling.SamplingParams and StopConditions."""

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
