"""Wire types of the routes that editors know from llama-server: /infill, /apply-template and /props."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from jan_serve.api.dialects.openai import limits
from jan_serve.api.dialects.openai.chat.wire import Timings
from jan_serve.api.dialects.openai.wire_common import Adapters, Count
from jan_serve.api.shared.durations import KeepAlive
from jan_serve.api.shared.wire_types import AtMost, Between, FirstError, Int, Strings, WireModel


class ExtraFile(WireModel):
    """A part of another file."""

    filename: str = "tmp"
    text: str


class InfillRequest(WireModel):
    """A gap in code to fill. Defaults are llama-server's."""

    input_prefix: Annotated[str, Field(description="The text before the gap.")] = ""
    input_suffix: Annotated[str, Field(description="The text behind the gap.")] = ""
    input_extra: Annotated[
        list[ExtraFile],
        FirstError(),
        AtMost(limits.MAX_EXTRA_FILES, "input_extra"),
        Field(description="Parts of other files. The first ones go where the context is too short."),
    ] = Field(default_factory=list[ExtraFile])
    prompt: Annotated[str, Field(description="The beginning of what fills the gap.")] = ""
    n_predict: Annotated[
        Annotated[Int, Between(-1)],
        Field(
            description="Tokens to generate at most. -1 is until the context ends; 0 only reads the prompt."
        ),
    ] = -1
    t_max_predict_ms: Annotated[
        Count, Field(description="Milliseconds after which a text that has a line break ends. 0 is never.")
    ] = 0
    samplers: Annotated[
        Strings | str | None,
        Field(description="Which samplers to use, by name or by llama.cpp's letters; all others are off."),
    ] = None
    temperature: Annotated[float, Between(0, limits.MAX_TEMPERATURE)] = 0.8
    top_k: Int = 40
    top_p: Annotated[float, Between(0, 1)] = 0.95
    min_p: Annotated[float, Between(0, 1)] = 0.05
    typical_p: Annotated[float, Between(0, 1)] = 1.0
    repeat_penalty: Annotated[float, Between(0, limits.MAX_REPEAT_PENALTY)] = 1.0
    repeat_last_n: Annotated[Int, Between(-1)] = 64
    presence_penalty: Annotated[float, Between(-2, 2)] = 0.0
    frequency_penalty: Annotated[float, Between(-2, 2)] = 0.0
    seed: Int | None = None
    lora: Adapters = None
    keep_alive: KeepAlive = None
    stop: Annotated[str | Strings | None, AtMost(limits.MAX_STOPS, "stop")] = None
    stream: bool = False
    model: str | None = None


class InfillSettings(TypedDict):
    """What was used, as far as it can be set."""

    n_predict: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    typical_p: float
    seed: int | None
    stop: list[str]
    samplers: list[str]


class InfillResponse(TypedDict):
    """What fills the gap; in a stream the last event, whose content is empty."""

    index: int
    content: str
    stop: bool
    model: str
    tokens_predicted: int
    tokens_evaluated: int
    tokens_cached: int
    generation_settings: InfillSettings
    has_new_line: bool
    truncated: bool
    stop_type: str
    stopping_word: str
    timings: Timings


class InfillChunk(TypedDict):
    """More of it."""

    index: int
    content: str
    stop: bool
    tokens_evaluated: NotRequired[int]


class AppliedTemplate(TypedDict):
    """The prompt that a chat would be."""

    prompt: str


class Props(TypedDict):
    """The default model and the server, as far as clients of llama-server ask."""

    default_generation_settings: dict[str, Any]
    total_slots: int
    model_alias: str
    model_path: str
    chat_template: str
    chat_template_tool_use: NotRequired[str]
    bos_token: str
    eos_token: str
    modalities: dict[str, bool]
    build_info: str


class LoraAdapter(TypedDict):
    """path: its name as well; files of this machine are not shown. scale: of requests that choose it and say none."""

    id: int
    name: str
    path: str
    scale: float
