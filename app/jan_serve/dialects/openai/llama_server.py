"""llama-server's routes that editors use, with its form of an answer: /infill and /completion."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Final, NotRequired

from fastapi import APIRouter
from pydantic import AliasChoices, Field
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from jan_serve.core import events as core
from jan_serve.core.request import (
    ChatPrompt,
    GenerationRequest,
    InfillFile,
    InfillPrompt,
    Prompt,
    SamplingParams,
    StopConditions,
    TextPrompt,
    TokenPrompt,
)
from jan_serve.dialects.openai.chat.parse import chat_request
from jan_serve.dialects.openai.chat.wire import CreateChatCompletionRequest, PromptProgress, Timings
from jan_serve.dialects.openai.dialect import OpenAIParts
from jan_serve.dialects.openai.models import add_fact_routes
from jan_serve.dialects.openai.parse_common import adapter_choices
from jan_serve.dialects.openai.parse_constraint import constraint_of
from jan_serve.dialects.openai.render_common import Reports, timings_of
from jan_serve.dialects.openai.tokens import add_llama_routes
from jan_serve.dialects.openai.wire_common import Adapters, ConstraintFields, Count, ReportFields
from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.answers import FoldedAnswer, StopDetail, answer, stop_detail
from jan_serve.dialects.shared.default_error_body import error_body
from jan_serve.dialects.shared.generation_fields import KeepAlive, explicit_fields, stop_texts, ttl_s
from jan_serve.dialects.shared.sampling_defaults import LLAMA_CPP
from jan_serve.dialects.shared.wire_types import (
    MAX_INT,
    AtMost,
    Between,
    FirstError,
    Inputs,
    Int,
    Strings,
    TextsOrTokens,
    WireModel,
    wrong,
)
from jan_serve.http.disconnect import while_connected
from jan_serve.http.replies import json_reply
from jan_serve.http.sse import STREAMED


class ExtraFile(WireModel):
    filename: str = "tmp"
    text: str


class AnswerFields(ConstraintFields, ReportFields):
    """How to continue a text. Defaults are llama-server's."""

    n_predict: Annotated[Int, Between(-1)] = Field(
        -1,
        validation_alias=AliasChoices("n_predict", "max_tokens", "max_completion_tokens"),
        description="Maximum tokens to generate. -1 generates until the context is full; 0 only reads the prompt.",
    )
    t_max_predict_ms: Annotated[
        Count, Field(description="Milliseconds after which a text with a line break ends. 0 is never.")
    ] = 0
    samplers: str | Strings | None = Field(
        None, description="Samplers to use, by name or by llama.cpp's letters; all others are off."
    )
    temperature: Annotated[float, Between(0, limits.MAX_TEMPERATURE)] = LLAMA_CPP.temperature
    top_k: Int = LLAMA_CPP.top_k
    top_p: Annotated[float, Between(0, 1)] = LLAMA_CPP.top_p
    min_p: Annotated[float, Between(0, 1)] = LLAMA_CPP.min_p
    typical_p: Annotated[float, Between(0, 1)] = 1.0
    repeat_penalty: Annotated[float, Between(0, limits.MAX_PENALTY)] = 1.0
    repeat_last_n: Annotated[Int, Between(-1)] = 64
    presence_penalty: Annotated[float, Between(-2, 2)] = 0.0
    frequency_penalty: Annotated[float, Between(-2, 2)] = 0.0
    seed: Int | None = None
    ignore_eos: Annotated[
        bool, Field(description="The model may not end the text: only a stop text or the token limit does.")
    ] = False
    n_probs: Annotated[Int, Between(0, limits.MAX_LOGPROBS)] = Field(
        0, description="Return the log-probabilities of each token and of as many likely ones."
    )
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
    """A piece of the text, in a stream."""

    index: int
    content: str
    stop: bool
    tokens_evaluated: NotRequired[int]
    timings: NotRequired[Timings]
    prompt_progress: NotRequired[PromptProgress]


class AppliedTemplate(TypedDict):
    prompt: str


SAMPLERS: Final = {
    "penalties": "e",
    "dry": "d",
    "top_n_sigma": "s",
    "top_k": "k",
    "typ_p": "y",
    "top_p": "p",
    "min_p": "m",
    "xtc": "x",
    "temperature": "t",
    "infill": "i",
}
"""llama.cpp's names and letters. Samplers that this server lacks are off by default in llama.cpp too."""
_OTHER_NAMES: Final = {"typical_p": "typ_p"}
"""Which llama.cpp reads and does not write."""

_DEFAULT: Final = ("penalties", "top_k", "typ_p", "top_p", "min_p", "temperature")


def infill_request(body: InfillRequest) -> GenerationRequest:
    prompt = InfillPrompt(
        prefix=body.input_prefix,
        suffix=body.input_suffix,
        extra=tuple(InfillFile(file.filename, file.text) for file in body.input_extra),
        middle=body.prompt,
        may_cut=True,
    )
    return _request_of(body, prompt)


def text_request(body: TextRequest) -> GenerationRequest:
    [prompt] = body.prompt
    return _request_of(body, TextPrompt(prompt) if isinstance(prompt, str) else TokenPrompt(prompt))


def _request_of(body: AnswerFields, prompt: Prompt) -> GenerationRequest:
    used = set(_letters(body))
    off = SamplingParams()
    requested = constraint_of(body)
    return GenerationRequest(
        model=body.model or None,
        prompt=prompt,
        sampling=SamplingParams(
            temperature=body.temperature if "t" in used else off.temperature,
            top_k=min(max(0, body.top_k), MAX_INT) if "k" in used else off.top_k,
            top_p=body.top_p if "p" in used else off.top_p,
            min_p=body.min_p if "m" in used else off.min_p,
            typical_p=body.typical_p if "y" in used else off.typical_p,
            repeat_penalty=(body.repeat_penalty or 1.0) if "e" in used else off.repeat_penalty,
            repeat_last_n=min(body.repeat_last_n, MAX_INT),
            presence_penalty=body.presence_penalty if "e" in used else off.presence_penalty,
            frequency_penalty=body.frequency_penalty if "e" in used else off.frequency_penalty,
            infill="i" in used,
            seed=body.seed if body.seed is not None and 0 <= body.seed < 0xFFFFFFFF else None,
        ),
        stopping=StopConditions(
            max_tokens=min(body.n_predict, MAX_INT) if body.n_predict >= 0 else None,
            stop=stop_texts(body.stop),
            ignore_eos=body.ignore_eos,
            max_decode_s=min(body.t_max_predict_ms, MAX_INT) / 1000 if body.t_max_predict_ms > 0 else None,
        ),
        constraint=requested.constraint,
        constraint_field=requested.field,
        # A list of samplers sets all of them: model defaults replace none.
        given=explicit_fields(body, n_predict="max_tokens") if body.samplers is None else None,
        adapters=adapter_choices(body.lora),
        ttl_s=ttl_s(body.keep_alive),
        reports_progress=body.wants_reports,
        logprobs=body.n_probs or None,
        return_tokens=body.return_tokens or body.stream,
    )


def _letters(body: AnswerFields) -> str:
    samplers = body.samplers
    if samplers is None:
        samplers = list(_DEFAULT)
    if isinstance(samplers, str):
        unknown = [letter for letter in samplers if letter not in SAMPLERS.values()]
        if unknown:
            raise wrong("samplers", f"{unknown[0]!r} is no letter of a sampler")
        return samplers
    samplers = [_OTHER_NAMES.get(name, name) for name in samplers]
    for name in samplers:
        if name not in SAMPLERS:
            raise wrong("samplers", f"{name[:40]!r} is not one of {', '.join(SAMPLERS)}")
    return "".join(SAMPLERS[name] for name in samplers)


class InfillRenderer(FoldedAnswer):
    """A stream has pieces of text, then the other fields of the answer. There is no end mark."""

    def __init__(self, body: AnswerFields) -> None:
        super().__init__()
        self._body = body
        self._reports = Reports(body)

    def body(self) -> InfillResponse:
        return self._final(self.choices[0].text, self.choices[0].tokens)

    def _final(self, content: str, tokens: Sequence[core.TokenInfo] = ()) -> InfillResponse:
        usage = self.completed.usage
        finished = self.choices[0].finished
        return {
            "index": 0,
            "content": content,
            **self._tokens(tokens),
            "stop": True,
            "model": self.started.model,
            "tokens_predicted": usage.completion_tokens,
            "tokens_evaluated": usage.prompt_tokens,
            "tokens_cached": usage.cached_tokens,
            "generation_settings": self._settings(),
            "has_new_line": "\n" in self.choices[0].text,
            "truncated": self.started.truncated,
            "stop_type": _stop_type(finished),
            **stop_detail(finished),
            "stopping_word": (finished.stop if finished is not None else None) or "",
            "timings": timings_of(self.completed),
        }

    def _settings(self) -> InfillSettings:
        body, finished = self._body, self.choices[0].finished
        return {
            "n_predict": body.n_predict,
            "temperature": body.temperature,
            "top_k": body.top_k,
            "top_p": body.top_p,
            "min_p": body.min_p,
            "typical_p": body.typical_p,
            "seed": finished.seed if finished is not None else body.seed,
            "stop": list(stop_texts(body.stop)),
            "samplers": [name for name, letter in SAMPLERS.items() if letter in _letters(body)],
        }

    def chunks(self, event: core.GenerationEvent) -> Iterator[InfillChunk | InfillResponse]:
        return self._reports.added(event, self._chunks(event), lambda _: _piece(""))

    def _chunks(self, event: core.GenerationEvent) -> Iterator[InfillChunk | InfillResponse]:
        self.add(event)
        match event:
            case core.TextDelta() as delta if delta.text or delta.tokens:
                yield _piece(delta.text, self._tokens(delta.tokens))
            case core.Completed():
                yield self._final("")
            case _:
                pass

    def _tokens(self, tokens: Sequence[core.TokenInfo]) -> InfillTokens:
        ids = [token.id for token in tokens] if self._body.return_tokens or self._body.stream else []
        if not self._body.n_probs:
            return {"tokens": ids}
        return {"tokens": ids, "completion_probabilities": [_probability(token) for token in tokens]}


def _piece(text: str, tokens: InfillTokens | None = None) -> InfillChunk:
    return {"index": 0, "content": text, **(tokens or {"tokens": []}), "stop": False}


def _probability(token: core.TokenInfo | core.TokenLogprob) -> TokenProbability:
    shown: TokenProbability = {
        "id": token.id,
        "token": token.piece.decode("utf-8", "replace"),
        "bytes": list(token.piece),
        "logprob": token.logprob or 0.0,
    }
    if isinstance(token, core.TokenInfo):
        shown["top_logprobs"] = [_probability(each) for each in token.top]
    return shown


def _stop_type(finished: core.Finished | None) -> str:
    if finished is None:
        return "none"
    if finished.stop is not None:
        return "word"
    return "eos" if finished.reason == "stop" else "limit"


def add_routes(router: APIRouter, parts: OpenAIParts) -> None:
    add_llama_routes(router, parts)
    add_fact_routes(router, parts)

    async def answered(request: Request, body: AnswerFields, generation: GenerationRequest) -> Response:
        events, renderer = parts.service.generate(generation), InfillRenderer(body)
        streams = parts.services.streams
        return await answer(request, events, renderer, error_body, streams, stream=body.stream, done=b"")

    @router.post("/infill", summary="Infill", response_model=InfillResponse, responses=STREAMED)
    async def infill(request: Request, body: InfillRequest) -> Response:
        """Fill a gap in code."""
        return await answered(request, body, infill_request(body))

    @router.post("/completion", summary="Completion", response_model=InfillResponse, responses=STREAMED)
    async def completion(request: Request, body: TextRequest) -> Response:
        """Continue a text or token ids, without a template."""
        return await answered(request, body, text_request(body))

    async def chat_text(model_name: str | None, prompt: ChatPrompt) -> str:
        async with parts.service.open(model_name) as model:
            return await model.chat_text(prompt, model_name)

    @router.post("/apply-template", summary="Apply template", response_model=AppliedTemplate)
    async def apply_template(request: Request, body: CreateChatCompletionRequest) -> Response:
        """Render a chat to the prompt that the model reads."""
        chat = chat_request(body)
        assert isinstance(chat.prompt, ChatPrompt)
        return json_reply({"prompt": await while_connected(request, chat_text(chat.model, chat.prompt))})
