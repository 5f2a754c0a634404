"""What LMDeploy's generation requests and answers share: fields, checks with LMDeploy's messages, counts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
from pydantic import Field
from typing_extensions import TypedDict

from jan_serve.core.constraint import Constraint, JsonObjectConstraint, JsonSchemaConstraint, RegexConstraint
from jan_serve.core.events import Completed, Finished, GenerationEvent, Started, TokenInfo
from jan_serve.core.request import GenerationRequest, Prompt, SamplingParams, StopConditions
from jan_serve.dialects.lmdeploy.distserve import MigrationFields
from jan_serve.dialects.lmdeploy.serving import Session
from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.answers import FoldedAnswer
from jan_serve.dialects.shared.documented_errors import FieldErrorBody
from jan_serve.dialects.shared.generation_fields import (
    RepetitionFields,
    explicit_fields,
    repetition_detection,
    stop_texts,
)
from jan_serve.dialects.shared.lmdeploy_forms import ErrorBody
from jan_serve.dialects.shared.wire_types import MAX_INT, AtMost, Int, LaxModel, Strings
from jan_serve.errors import InvalidRequest


class StreamOptions(LaxModel):
    include_usage: bool | None = False


class JsonSchema(LaxModel):
    """A named schema. `strict` has no effect: answers always follow the schema."""

    name: str
    description: str | None = None
    schema_: Annotated[dict[str, Any] | None, Field(alias="schema")] = None
    strict: bool | None = False


class ResponseFormat(LaxModel):
    type: Literal["text", "json_object", "json_schema", "regex_schema"]
    json_schema: JsonSchema | None = None
    regex_schema: str | None = None


class GenerationFields(MigrationFields):
    """Sampling, stopping and presentation. The parser checks ranges, with LMDeploy's messages."""

    temperature: float | None = 1.0
    top_k: Int | None = 0
    top_p: float | None = 1.0
    min_p: float = 0.0
    repetition_penalty: float | None = 1.0
    stop: Annotated[
        str | Strings | None,
        AtMost(limits.MAX_STOPS, "stop"),
        Field(description="Texts that end the answer, which then excludes them."),
    ] = None
    ignore_eos: Annotated[
        bool | None, Field(description="Neither end-of-text tokens nor stop texts end the answer.")
    ] = False
    skip_special_tokens: Annotated[
        bool | None, Field(description="`false` shows special tokens in the text.")
    ] = True
    spaces_between_special_tokens: Annotated[
        bool | None, Field(description="No effect: tokens are joined as fast tokenizers join them.")
    ] = True
    include_stop_str_in_output: Annotated[
        bool | None, Field(description="The token or text that ends the answer is part of it.")
    ] = False
    repetition_detection: RepetitionFields | None = None
    session_id: Annotated[Int | None, Field(description="Id of the request for `/abort_request`.")] = -1
    stream: bool | None = False
    response_format: ResponseFormat | None = None
    mm_processor_kwargs: dict[str, Any] | None = None


class SamplingFields(GenerationFields):
    """Additional fields of the /v1 routes."""

    model: str
    temperature: float | None = 0.7
    top_k: Int | None = 40
    n: Int | None = 1
    seed: Int | None = None
    max_completion_tokens: Int | None = None
    return_token_ids: bool | None = False
    stream_options: StreamOptions | None = None
    presence_penalty: float | None = 0.0
    frequency_penalty: float | None = 0.0
    user: str | None = None


class PromptTokens(TypedDict):
    """cached_tokens: that were not computed again."""

    cached_tokens: int


class Usage(TypedDict):
    """prompt_tokens_details: as in OpenAI's API; proxies learn from it where a prompt is cached."""

    prompt_tokens: int
    total_tokens: int
    completion_tokens: int
    prompt_tokens_details: PromptTokens


class ValidationErrorBody(ErrorBody):
    """A request that breaks the schema: FastAPI's list beside the flat body."""

    detail: list[FieldErrorBody]


class KeyErrorDetail(TypedDict):
    message: str
    type: str
    param: None
    code: str


class KeyErrorWrapper(TypedDict):
    error: KeyErrorDetail


class KeyErrorBody(TypedDict):
    detail: KeyErrorWrapper


_MAX_TEMPERATURE: Final = 2.0
_MAX_SESSION_ID: Final = (1 << 63) - 1
_WHOLE_CONTEXT: Final = -1
"""llama.cpp's value for penalties over the whole context."""


def request_of(
    body: GenerationFields,
    prompt: Prompt,
    stopping: StopConditions,
    *,
    logit_bias: Mapping[int, float] | None = None,
    **more: Any,
) -> GenerationRequest:
    """The request to the model, which returns tokens: the API counts them. more: fields that not all requests have."""
    return GenerationRequest(
        prompt=prompt,
        sampling=sampling_params(body, logit_bias),
        stopping=stopping,
        constraint=constraint_of(body.response_format),
        return_tokens=True,
        skip_special_tokens=body.skip_special_tokens is not False,
        given=explicit_fields(body, repetition_penalty="repeat_penalty", max_completion_tokens="max_tokens"),
        **more,
    )


def sampling_params(body: GenerationFields, logit_bias: Mapping[int, float] | None = None) -> SamplingParams:
    """Null turns a sampler off; a penalty of 0 or less and a seed of 0 count as absent."""
    seed = body.seed if isinstance(body, SamplingFields) else None
    top_p = 1.0 if body.top_p is None else body.top_p
    top_k = 0 if body.top_k is None else body.top_k
    temperature = 1.0 if body.temperature is None else body.temperature
    penalty = 1.0 if body.repetition_penalty is None else body.repetition_penalty
    for fits, name, words in (
        (0 < top_p <= 1, "top_p", f"{top_p} must be in (0, 1]."),
        (top_k >= 0, "top_k", f"{_short(top_k)} cannot be a negative integer."),
        (0 <= temperature <= _MAX_TEMPERATURE, "temperature", f"{temperature} must be in [0, 2]"),
        (0 <= body.min_p <= 1, "min_p", f"{body.min_p} must be in [0, 1]."),
        (
            penalty <= limits.MAX_PENALTY,
            "repetition_penalty",
            f"{penalty} must be {limits.MAX_PENALTY:g} at most.",
        ),
    ):
        if not fits:
            raise InvalidRequest(f"The {name} {words}", param=name)
    return SamplingParams(
        temperature=temperature,
        top_k=min(top_k, MAX_INT),
        top_p=top_p,
        min_p=body.min_p,
        repeat_penalty=penalty if penalty > 0 else 1.0,
        repeat_last_n=_WHOLE_CONTEXT,
        seed=seed % limits.SEEDS if seed else None,
        logit_bias=dict(logit_bias or {}),
    )


def wants_usage(body: SamplingFields) -> bool:
    return body.stream_options is not None and body.stream_options.include_usage is True


def stop_conditions(
    body: GenerationFields,
    *,
    max_tokens: int | None,
    min_tokens: int | None = None,
    stop_token_ids: Sequence[int] = (),
) -> StopConditions:
    """max_tokens: None generates until the context is full."""
    minimum = _minimum(min_tokens, max_tokens)
    stops = stop_texts(body.stop)
    if body.ignore_eos:
        stops, stop_token_ids = (), ()
    return StopConditions(
        max_tokens=None if max_tokens is None else min(max_tokens, MAX_INT),
        min_tokens=minimum,
        stop=stops,
        stop_token_ids=tuple(stop_token_ids),
        include_stop=bool(body.include_stop_str_in_output),
        stop_after_min=minimum > 0,
        ignore_eos=bool(body.ignore_eos),
        repetition_detection=repetition_detection(body.repetition_detection),
    )


def token_limit(max_completion_tokens: int | None, max_tokens: int | None) -> int | None:
    """max_completion_tokens takes precedence unless it is null or 0."""
    name = "max_completion_tokens" if max_completion_tokens else "max_tokens"
    limit = max_completion_tokens or max_tokens
    if limit is not None and limit < 0:
        raise InvalidRequest(f"The {name} {_short(limit)} must be a positive integer.", param=name)
    return limit


def choice_count(n: int | None, prompts: int = 1) -> int:
    """Choices for each prompt, within MAX_CHOICES for all prompts."""
    n = 1 if n is None else n
    if n <= 0:
        raise InvalidRequest(f"The n {_short(n)} must be a positive int.", param="n")
    if n > limits.MAX_CHOICES:
        raise InvalidRequest(
            f"The n {_short(n)} exceeds the maximum supported choices ({limits.MAX_CHOICES}).", param="n"
        )
    if n * prompts > limits.MAX_CHOICES:
        message = f"prompt: {prompts} prompts with {n} choices each are {n * prompts}"
        raise InvalidRequest(f"{message}; the limit is {limits.MAX_CHOICES}", param="prompt")
    return n


def requested_session(session_id: int | None) -> int | None:
    """The id that the caller chose; None if the server chooses, which -1 and 0 ask for, too."""
    if session_id is None or session_id in (-1, 0):
        return None
    if not -1 <= session_id <= _MAX_SESSION_ID:
        message = f"session_id: must be from -1 to {_MAX_SESSION_ID}, got {_short(session_id)}"
        raise InvalidRequest(message, param="session_id")
    return session_id


def candidates(logprobs: int | None, name: str) -> int | None:
    """Number of likely tokens to return besides the chosen one. None, also for 0: no log-probabilities."""
    count = logprobs or 0
    if count < 0:
        raise InvalidRequest(
            f"{name} must be non-negative when logprobs_mode is enabled in engine configuration.", param=name
        )
    if count > limits.MAX_LOGPROBS:
        raise InvalidRequest(
            f"{name}: must be from 0 to {limits.MAX_LOGPROBS}, got {_short(count)}", param=name
        )
    return count or None


def logit_bias(by_text: Mapping[str, float] | None) -> dict[int, float]:
    """Token ids, with biases clamped to MAX_BIAS."""
    by_id: dict[int, float] = {}
    for key, bias in (by_text or {}).items():
        digits = key.strip().removeprefix("-")
        if not digits.isascii() or not digits.isdigit() or len(digits) > 10:
            raise InvalidRequest(
                "Found token_id in logit_bias that is not an integer or string representing an integer",
                param="logit_bias",
            )
        by_id[int(key)] = max(-limits.MAX_BIAS, min(bias, limits.MAX_BIAS))
    return by_id


def check_bias(bias: Mapping[int, float], n_vocab: int) -> None:
    """Every id must be in the vocabulary."""
    for token in bias:
        if not 0 <= token < n_vocab:
            raise InvalidRequest(
                f"token_id {token} in logit_bias contains out-of-vocab token id", param="logit_bias"
            )


def constraint_of(response_format: ResponseFormat | None) -> Constraint | None:
    match response_format:
        case None | ResponseFormat(type="text"):
            return None
        case ResponseFormat(type="json_object"):
            return JsonObjectConstraint()
        case ResponseFormat(type="regex_schema", regex_schema=pattern):
            if pattern is None:
                raise InvalidRequest(
                    "response_format: `regex_schema` needs a pattern, a text", param="response_format"
                )
            return RegexConstraint(pattern)
        case ResponseFormat(json_schema=wrapper):
            if wrapper is None or wrapper.schema_ is None:
                raise InvalidRequest("response_format: `json_schema` needs a schema", param="response_format")
            return JsonSchemaConstraint(wrapper.schema_)


def _minimum(min_tokens: int | None, max_tokens: int | None) -> int:
    minimum = min_tokens or 0
    if minimum < 0:
        raise InvalidRequest(
            f"The min_new_tokens {_short(minimum)} cannot be a negative integer.", param="min_new_tokens"
        )
    if max_tokens is not None and minimum > max_tokens:
        return 0  # LMDeploy ignores a minimum that cannot be reached
    return min(minimum, MAX_INT)


def _short(value: int) -> str:
    return str(value)[:20]


class ReplyFacts(msgspec.Struct, frozen=True):
    """model: as the client sent it. shows_session: the reply has the session's id, even if the server chose it."""

    session: Session
    created: int
    model: str
    shows_session: bool = True

    def members(self, kind: str) -> dict[str, Any]:
        """What each reply and event begins with."""
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}

    @property
    def id(self) -> str:
        """The session's id in digits, known from the first event on; -1 if it is not shown."""
        shown = self.session.id if self.shows_session else self.session.requested_id
        return str(-1 if shown is None else shown)


class Answer(FoldedAnswer):
    """All choices of a call, by index. prompt_tokens: of the prompts that began."""

    def __init__(self, choices: int, *, include_stop: bool) -> None:
        super().__init__(choices)
        self.prompt_tokens = 0
        self._include_stop = include_stop

    @property
    def completion_tokens(self) -> int:
        return sum(len(choice.tokens) for choice in self.choices)

    def add(self, event: GenerationEvent) -> None:
        super().add(event)
        match event:
            case Started() as started:
                self.prompt_tokens += started.prompt_tokens
            case Finished() as finished:
                for token in self.shown_end(finished):
                    self.choices[finished.index].texts.append(text_of(token))
                    self.choices[finished.index].tokens.append(token)
            case Completed() as completed:
                self.prompt_tokens = completed.usage.prompt_tokens
            case _:
                pass

    def shown_end(self, finished: Finished) -> tuple[TokenInfo, ...]:
        """The token that ended the text, if it is part of the answer."""
        if self._include_stop and finished.reason == "stop" and finished.end_token is not None:
            return (finished.end_token,)
        return ()

    def usage(self) -> Usage:
        return {
            "prompt_tokens": self.prompt_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "completion_tokens": self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.completed.usage.cached_tokens},
        }


def text_of(token: TokenInfo) -> str:
    """The text of a single token."""
    return token.piece.decode("utf-8", "replace")


def texts_of(tokens: Iterable[TokenInfo]) -> str:
    """The joined text of tokens, each of whole characters."""
    return "".join(map(text_of, tokens))


def ids_of(tokens: Sequence[TokenInfo]) -> list[int]:
    return [token.id for token in tokens]
