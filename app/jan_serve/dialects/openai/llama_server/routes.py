"""llama-server's routes that editors use; /infill is parsed to a GenerationRequest, and its answer rendered in llama-
server's form.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jan_serve import __version__
from jan_serve.core.events import Completed, Finished, GenerationEvent, TextDelta, TokenInfo, TokenLogprob
from jan_serve.core.models import ModelFacts
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
from jan_serve.dialects.dialect import Services
from jan_serve.dialects.openai.chat.parse import chat_request
from jan_serve.dialects.openai.chat.wire import ChatInputTokens, CreateChatCompletionRequest
from jan_serve.dialects.openai.llama_server.wire import (
    AnswerFields,
    AppliedTemplate,
    InfillChunk,
    InfillRequest,
    InfillResponse,
    InfillSettings,
    InfillTokens,
    LoraAdapter,
    Props,
    SlotState,
    TextRequest,
    TokenizedRequest,
    TokenList,
    TokenProbability,
    TokensRequest,
    TokensText,
)
from jan_serve.dialects.openai.outline import LLAMA_PATH
from jan_serve.dialects.openai.parse_common import adapter_choices
from jan_serve.dialects.openai.parse_constraint import constraint_of
from jan_serve.dialects.openai.render_common import Reports, shown_piece, timings_of
from jan_serve.dialects.shared.answers import FoldedAnswer, answer, stop_detail
from jan_serve.dialects.shared.default_error_body import error_body
from jan_serve.dialects.shared.generation_fields import explicit_fields, stop_texts, ttl_s
from jan_serve.dialects.shared.wire_types import MAX_INT
from jan_serve.errors import InvalidRequest
from jan_serve.generation.leased_model import LeasedModel
from jan_serve.generation.service import GenerationService
from jan_serve.http.disconnect import while_connected
from jan_serve.http.replies import json_reply
from jan_serve.http.sse import STREAMED
from jan_serve.placement.report import advice, lines

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
            raise InvalidRequest(f"samplers: {unknown[0]!r} is no letter of a sampler", param="samplers")
        return samplers
    samplers = [_OTHER_NAMES.get(name, name) for name in samplers]
    for name in samplers:
        if name not in SAMPLERS:
            raise InvalidRequest(
                f"samplers: {name[:40]!r} is not one of {', '.join(SAMPLERS)}", param="samplers"
            )
    return "".join(SAMPLERS[name] for name in samplers)


class InfillRenderer(FoldedAnswer):
    """A stream has pieces of text, then the other fields of the answer. There is no end mark."""

    def __init__(self, body: AnswerFields) -> None:
        super().__init__()
        self._body = body
        self._reports = Reports(body)

    def body(self) -> InfillResponse:
        return self._final(self.choices[0].text, self.choices[0].tokens)

    def _final(self, content: str, tokens: Sequence[TokenInfo] = ()) -> InfillResponse:
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

    def chunks(self, event: GenerationEvent) -> Iterator[InfillChunk | InfillResponse]:
        return self._reports.added(event, self._chunks(event), lambda _: _piece(""))

    def _chunks(self, event: GenerationEvent) -> Iterator[InfillChunk | InfillResponse]:
        self.add(event)
        match event:
            case TextDelta() as delta if delta.text or delta.tokens:
                yield _piece(delta.text, self._tokens(delta.tokens))
            case Completed():
                yield self._final("")
            case _:
                pass

    def _tokens(self, tokens: Sequence[TokenInfo]) -> InfillTokens:
        ids = [token.id for token in tokens] if self._body.return_tokens or self._body.stream else []
        if not self._body.n_probs:
            return {"tokens": ids}
        return {"tokens": ids, "completion_probabilities": [_probability(token) for token in tokens]}


def _piece(text: str, tokens: InfillTokens | None = None) -> InfillChunk:
    return {"index": 0, "content": text, **(tokens or {"tokens": []}), "stop": False}


def _probability(token: TokenInfo | TokenLogprob) -> TokenProbability:
    shown: TokenProbability = {
        "id": token.id,
        "token": token.piece.decode("utf-8", "replace"),
        "bytes": list(token.piece),
        "logprob": token.logprob or 0.0,
    }
    if isinstance(token, TokenInfo):
        shown["top_logprobs"] = [_probability(each) for each in token.top]
    return shown


def _stop_type(finished: Finished | None) -> str:
    if finished is None:
        return "none"
    if finished.stop is not None:
        return "word"
    return "eos" if finished.reason == "stop" else "limit"


def add_llama_routes(router: APIRouter, services: Services, generation: GenerationService) -> None:
    _add_token_routes(router, generation)
    _add_fact_routes(router, services, generation)

    @router.post("/infill", summary="Infill", response_model=InfillResponse, responses=STREAMED)
    async def infill(request: Request, body: InfillRequest) -> Response:
        """Fill a gap in code."""
        events = generation.generate(infill_request(body))
        renderer, streams = InfillRenderer(body), services.streams
        return await answer(request, events, renderer, error_body, streams, stream=body.stream, done=b"")

    @router.post("/completion", summary="Completion", response_model=InfillResponse, responses=STREAMED)
    async def completion(request: Request, body: TextRequest) -> Response:
        """Continue a text or token ids, without a template."""
        events = generation.generate(text_request(body))
        renderer, streams = InfillRenderer(body), services.streams
        return await answer(request, events, renderer, error_body, streams, stream=body.stream, done=b"")

    async def chat_text(model_name: str | None, prompt: ChatPrompt) -> str:
        async with generation.open(model_name) as model:
            return await model.chat_text(prompt, model_name)

    @router.post("/apply-template", summary="Apply template", response_model=AppliedTemplate)
    async def apply_template(request: Request, body: CreateChatCompletionRequest) -> Response:
        """Render a chat to the prompt that the model reads."""
        chat = chat_request(body)
        assert isinstance(chat.prompt, ChatPrompt)
        return json_reply({"prompt": await while_connected(request, chat_text(chat.model, chat.prompt))})


def _add_token_routes(router: APIRouter, generation: GenerationService) -> None:
    @router.post("/v1/chat/completions/input_tokens", summary="Input tokens", response_model=ChatInputTokens)
    async def count_input_tokens(request: Request, body: CreateChatCompletionRequest) -> Response:
        """Count the tokens of a chat's prompt, including tools. Loads the model."""
        chat = chat_request(body)
        assert isinstance(chat.prompt, ChatPrompt)
        counted = partial(LeasedModel.count, prompt=chat.prompt, requested=chat.model)
        tokens = await while_connected(request, generation.with_model(chat.model, counted))
        return json_reply({"object": "response.input_tokens", "input_tokens": tokens})

    @router.post(LLAMA_PATH, summary="Tokenize", response_model=TokenList)
    async def tokenize(request: Request, body: TokenizedRequest) -> Response:
        """Cut a text into tokens. Also at `/tokenize`, for bodies with `content`."""
        work = partial(
            LeasedModel.tokenize,
            text=body.content,
            add_special=body.add_special,
            parse_special=body.parse_special,
            with_pieces=body.with_pieces,
        )
        found = await while_connected(request, generation.with_model(body.model or None, work))
        if not body.with_pieces:
            return json_reply({"tokens": found.tokens})
        pairs = zip(found.tokens, found.pieces, strict=True)
        return json_reply({"tokens": [{"id": token, "piece": shown_piece(piece)} for token, piece in pairs]})

    @router.post("/detokenize", summary="Detokenize", response_model=TokensText)
    async def detokenize(request: Request, body: TokensRequest) -> Response:
        """Turn token ids into text."""
        for token in body.tokens:
            if not 0 <= token <= MAX_INT:
                raise InvalidRequest(f"tokens: {str(token)[:20]} is not a token id", param="tokens")
        work = partial(LeasedModel.detokenize, tokens=body.tokens, skip_special_tokens=False)
        text = await while_connected(request, generation.with_model(body.model or None, work))
        return json_reply({"content": text})


def _add_fact_routes(router: APIRouter, services: Services, generation: GenerationService) -> None:
    @router.get("/props", summary="Props", response_model=Props)
    async def props(request: Request, model: str | None = None) -> Response:
        """Properties of a model; without a name, of the default model. Loads the model."""
        name, facts = await while_connected(request, generation.facts(model or None))
        return json_reply(_props(name, facts))

    @router.get("/lora-adapters", summary="LoRA adapters", response_model=list[LoraAdapter])
    async def lora_adapters(request: Request, model: str | None = None) -> Response:
        """List the adapters of a model by the ids that `lora` takes. They apply only to requests that choose them."""
        _, facts = await while_connected(request, generation.facts(model or None))
        return json_reply(
            [
                {"id": index, "name": adapter.name, "path": adapter.name, "scale": adapter.scale}
                for index, adapter in enumerate(facts.adapters)
            ]
        )

    @router.get("/slots", summary="Slots", response_model=list[SlotState])
    async def slots(request: Request, model: str | None = None) -> Response:
        """List the slots of a model; without a name, of the default model. Loads the model."""
        name, facts = await while_connected(request, generation.facts(model or None))
        states = services.models.snapshot().models
        running = next((state.stats.running for state in states if state.name == name), 0)
        return json_reply(
            [
                {"id": index, "n_ctx": facts.n_ctx, "is_processing": index < running}
                for index in range(facts.parallel)
            ]
        )


def _props(name: str, facts: ModelFacts) -> Props:
    answer: Props = {
        "default_generation_settings": {"n_ctx": facts.n_ctx, "params": {"n_predict": -1}},
        "total_slots": facts.parallel,
        "model_alias": name,
        "model_path": name,
        "chat_template": facts.chat_templates.get("default", ""),
        "bos_token": facts.special_text("bos"),
        "eos_token": facts.special_text("eos"),
        "modalities": {sense: sense in facts.modalities for sense in ("vision", "audio")},
        "build_info": f"jan-serve {__version__}",
        "placement": [*lines(facts.placement), *advice(facts.placement, facts.placement_warning)],
    }
    if "tool_use" in facts.chat_templates:
        answer["chat_template_tool_use"] = facts.chat_templates["tool_use"]
    return answer
