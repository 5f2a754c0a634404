"""Wire types of llama-server's routes."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired

from pydantic import AliasChoices, Field
from typing_extensions import TypedDict

from jan_serve.dialects.openai.chat.wire import PromptProgress, Timings
from jan_serve.dialects.openai.wire_common import Adapters, ConstraintFields, Count, ReportFields
from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.answers import StopDetail
from jan_serve.dialects.shared.generation_fields import KeepAlive
from jan_serve.dialects.shared.wire_types import (
    AtMost,
    Between,
    FirstError,
    Inputs,
    Int,
    Ints,
    Strings,
    TextsOrTokens,
    WireModel,
)


class ExtraFile(WireModel):
    filename: str = "tmp"
    text: str


class AnswerFields(ConstraintFields, ReportFields):
    """How to continue a text. Defaults are llama-server's."""

    n_predict: Annotated[
        Annotated[Int, Between(-1)],
        Field(
            validation_alias=AliasChoices("n_predict", "max_tokens", "max_completion_tokens"),
            description="Maximum tokens to generate. -1 generates until the context is full; 0 only reads the prompt.",
        ),
    ] = -1
    t_max_predict_ms: Annotated[
        Count, Field(description="Milliseconds after which a text with a line break ends. 0 is never.")
    ] = 0
    samplers: Annotated[
        str | Strings | None,
        Field(description="Samplers to use, by name or by llama.cpp's letters; all others are off."),
    ] = None
    temperature: Annotated[float, Between(0, limits.MAX_TEMPERATURE)] = 0.8
    top_k: Int = 40
    top_p: Annotated[float, Between(0, 1)] = 0.95
    min_p: Annotated[float, Between(0, 1)] = 0.05
    typical_p: Annotated[float, Between(0, 1)] = 1.0
    repeat_penalty: Annotated[float, Between(0, limits.MAX_PENALTY)] = 1.0
    repeat_last_n: Annotated[Int, Between(-1)] = 64
    presence_penalty: Annotated[float, Between(-2, 2)] = 0.0
    frequency_penalty: Annotated[float, Between(-2, 2)] = 0.0
    seed: Int | None = None
    ignore_eos: Annotated[
        bool, Field(description="The model may not end the text: only a stop text or the token limit does.")
    ] = False
    n_probs: Annotated[
        Int,
        Between(0, limits.MAX_LOGPROBS),
        Field(description="Return the log-probabilities of each token and of as many likely ones."),
    ] = 0
    return_tokens: Annotated[bool, Field(description="Return the ids of the tokens; streams always do.")] = (
        False
    )
    lora: Adapters = None
    keep_alive: KeepAlive = None
    stop: Annotated[str | Strings | None, AtMost(limits.MAX_STOPS, "stop")] = None
    model: str | None = None


class InfillRequest(AnswerFields):
    """A gap in code to fill."""

    input_prefix: Annotated[str, Field(description="The text before the gap.")] = ""
    input_suffix: Annotated[str, Field(description="The text after the gap.")] = ""
    input_extra: Annotated[
        list[ExtraFile],
        FirstError(),
        AtMost(limits.MAX_EXTRA_FILES, "input_extra"),
        Field(description="Parts of other files. If the context is too short, the first ones are dropped."),
    ] = Field(default_factory=list[ExtraFile])
    prompt: Annotated[str, Field(description="The beginning of the text that fills the gap.")] = ""


class TextRequest(AnswerFields):
    """A text to continue, or its token ids."""

    prompt: Annotated[
        Inputs,
        TextsOrTokens("prompt", 1, limits.MAX_PROMPT_TOKENS),
        Field(description="The text or the ids."),
    ]


class TokensRequest(WireModel):
    """Token ids to turn into text."""

    tokens: Annotated[Ints, AtMost(limits.MAX_PROMPT_TOKENS, "tokens")]
    model: str | None = None


class TokenizedRequest(WireModel):
    """A text to cut into tokens. Defaults are llama-server's."""

    content: str
    add_special: Annotated[bool, Field(description="With BOS and EOS, if the model adds them.")] = False
    parse_special: Annotated[bool, Field(description="The text of a special token becomes it.")] = True
    with_pieces: Annotated[bool, Field(description="Return the text of each token too.")] = False
    model: str | None = None


class TokenPiece(TypedDict):
    """piece: the text, or its bytes if it is part of a character."""

    id: int
    piece: str | list[int]


class TokenList(TypedDict):
    tokens: list[int] | list[TokenPiece]


class TokensText(TypedDict):
    content: str


class InfillSettings(TypedDict):
    """The settings used for the answer."""

    n_predict: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    typical_p: float
    seed: int | None
    stop: list[str]
    samplers: list[str]


class TokenProbability(TypedDict):
    """bytes: of the token, which may be part of a character. logprob: of the distribution before the samplers."""

    id: int
    token: str
    bytes: list[int]
    logprob: float
    top_logprobs: NotRequired[list[TokenProbability]]


class InfillTokens(TypedDict):
    """tokens: ids. completion_probabilities: only if `n_probs` is set."""

    tokens: NotRequired[list[int]]
    completion_probabilities: NotRequired[list[TokenProbability]]


class InfillResponse(StopDetail, InfillTokens):
    """The text that fills the gap; in a stream, the last event, with empty content."""

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


class InfillChunk(InfillTokens):
    index: int
    content: str
    stop: bool
    tokens_evaluated: NotRequired[int]
    timings: NotRequired[Timings]
    prompt_progress: NotRequired[PromptProgress]


class AppliedTemplate(TypedDict):
    prompt: str


class Props(TypedDict):
    """Properties of a model and the server: the part of llama-server's /props that clients read.

    placement: ours: a line for each device that holds a part, and what would make the model faster.
    """

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
    placement: list[str]


class SlotState(TypedDict):
    """n_ctx: of the model, which its slots share."""

    id: int
    n_ctx: int
    is_processing: bool


class LoraAdapter(TypedDict):
    """path: the name again, so that no local path is shown. scale: for requests that choose it without a scale."""

    id: int
    name: str
    path: str
    scale: float
