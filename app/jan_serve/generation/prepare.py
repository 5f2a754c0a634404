"""Turns a GenerationRequest into an EngineRequest."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from jan_serve.chat.detect import knows_tools
from jan_serve.core.constraint import CompiledGrammar, Constraint, Explanation, Guide, JsonSchemaConstraint
from jan_serve.core.messages import PromptPiece
from jan_serve.core.models import ModelFacts
from jan_serve.core.request import (
    ChatPrompt,
    GenerationRequest,
    InfillPrompt,
    PartsPrompt,
    RenderedChat,
    RenderRequest,
    SamplingParams,
    TextPrompt,
    TokenPrompt,
)
from jan_serve.core.trace import KeptPrompt, current_trace
from jan_serve.core.transcript import random_hex
from jan_serve.errors import ContextLengthExceeded, InvalidRequest, UnsupportedOperation
from jan_serve.generation.adapters import chosen_adapters
from jan_serve.generation.answer_plan import AnswerParsers, ChatPlan
from jan_serve.generation.constraint.grammar_cache import GrammarCache
from jan_serve.generation.infill import infill_pieces
from jan_serve.generation.media_reader import MarkedMessages, MediaReader, ReadMedia, shown
from jan_serve.generation.ports import EngineClient, TemplateRenderer
from jan_serve.generation.profiles import Profiles, TemplateOverride, no_profiles, template_of, with_defaults
from jan_serve.generation.prompt_history import PromptHistory
from jan_serve.ipc.messages import CountRequest, EngineRequest, TokenizeRequest

T = TypeVar("T")

logger = logging.getLogger(__name__)

RANDOM_SEED_BITS = 31
"""Leaves room for seed + choice below 0xFFFFFFFF, which means "any seed" in llama.cpp."""


def draw_seed() -> int:
    """An unpredictable seed."""
    return int(random_hex(4), 16) >> (32 - RANDOM_SEED_BITS)


class PreparedRequest(msgspec.Struct, frozen=True):
    """submitted: for the engine. media: of its prompt, until they are decoded. parsers: None if the answer is plain
    text. The others: as in Started."""

    submitted: EngineRequest
    media: tuple[ReadMedia, ...] = ()
    infilled: bool = False
    truncated: bool = False
    warnings: tuple[str, ...] = ()
    parsers: AnswerParsers | None = None


class RequestPreparer:
    """Renders the prompt, then compiles the constraint. Of requests it keeps the hashes that PromptHistory compares."""

    def __init__(
        self,
        grammars: GrammarCache,
        renderer: TemplateRenderer,
        *,
        now: Callable[[], datetime],
        seed: Callable[[], int] = draw_seed,
        profiles: Profiles | None = None,
        media: MediaReader | None = None,
    ) -> None:
        """now: the local time, for templates that print the date. profiles: configuration of single models.

        media: None rejects all images and sounds.

        """
        self._grammars = grammars
        self._renderer = renderer
        self._profiles = profiles or no_profiles
        # Models whose missing template was logged.
        self._without_template: set[str] = set()
        self._now = now
        self._seed = seed
        self._media = media or MediaReader()
        self._history = PromptHistory()

    async def prepare(
        self, request: GenerationRequest, client: EngineClient, cache_salt: str
    ) -> PreparedRequest:
        """cache_salt: see EngineRequest. Raises InvalidRequest and its subclasses."""
        _check_generates(client.facts)
        request = with_defaults(request, self._profiles()(client.name, request.model))
        trace = current_trace()
        trace.operation = "chat" if isinstance(request.prompt, ChatPrompt) else "text_completion"
        if not isinstance(request.prompt, InfillPrompt):
            self._history.compare(trace, client.name, cache_salt, request.prompt)
        make = self._chat if isinstance(request.prompt, ChatPrompt) else self._plain
        prepared = await make(request, _without_prompt(request, client.next_id(), cache_salt), client)
        sent = prepared.submitted
        if trace.prompts is not None:
            shown_pieces = tuple(piece if isinstance(piece, str | tuple) else None for piece in sent.prompt)
            trace.prompts.append(KeptPrompt(shown_pieces, sent.add_special, sent.parse_special))
        if prepared.media:
            await _check_length(sent, client)
        with trace.spends("media"):
            pieces = await self._media.decoded(sent.prompt, prepared.media)
        sampling = await self._sampling(request, client)
        adapters = chosen_adapters(request.adapters, client)
        sent = replace(sent, prompt=pieces, sampling=sampling, adapters=adapters)
        return replace(prepared, submitted=sent, media=(), warnings=(*request.warnings, *prepared.warnings))

    async def _chat(
        self, request: GenerationRequest, begun: EngineRequest, client: EngineClient
    ) -> PreparedRequest:
        assert isinstance(request.prompt, ChatPrompt)
        plan = self._plan(request.prompt, client, request.model)
        marked, rendered = await self._render(plan, client)
        plan = plan.in_form(rendered.form)
        thought = plan.thought_guide(rendered.text)
        try:
            with current_trace().spends("compile"):
                guide, unenforced = await plan.constrained(thought, request.constraint, self._grammars)
        except InvalidRequest as error:
            raise await self._with_field(error, plan.prompt, request) from None
        starts_in_thought = thought is not None and thought.is_open
        stopping, turn_end = request.stopping, plan.turn_end(request.stopping)
        if turn_end is not None:
            stopping = replace(stopping, stop=(*stopping.stop, turn_end))
        submitted = replace(
            begun,
            prompt=marked.pieces(rendered.text),
            prompt_param="messages",
            stopping=stopping,
            guide=guide,
            visible_specials=plan.chat_format.special_tokens,
        )
        return PreparedRequest(
            submitted,
            marked.media,
            warnings=(*unenforced, *marked.warnings, *rendered.warnings),
            parsers=AnswerParsers(plan, starts_in_thought=starts_in_thought, turn_end=turn_end),
        )

    async def chat_text(self, prompt: ChatPrompt, client: EngineClient, requested: str | None = None) -> str:
        """The chat as the model reads it, with SHOWN_MARKER for media. requested: the name in the request.

        Raises TemplateError, InvalidRequest.
        """
        return shown(await self._chat_pieces(prompt, client, requested))

    async def count(
        self, prompt: ChatPrompt | PartsPrompt, client: EngineClient, requested: str | None = None
    ) -> int:
        """The tokens of the prompt; its images and sounds are not decoded. As `chat_text`."""
        if isinstance(prompt, ChatPrompt):
            pieces = await self._chat_pieces(prompt, client, requested)
            count = CountRequest(prompt=pieces, prompt_param="messages")
        else:
            pieces, _, _ = await self._media.placed(prompt.parts, client)
            count = CountRequest(prompt=pieces, add_special=prompt.add_special)
        return (await client.ask(count)).tokens

    async def fetched(self, prompt: PartsPrompt, client: EngineClient) -> PartsPrompt:
        return replace(prompt, parts=await self._media.fetched(prompt.parts, client))

    async def _chat_pieces(
        self, prompt: ChatPrompt, client: EngineClient, requested: str | None
    ) -> tuple[PromptPiece, ...]:
        _check_generates(client.facts)
        profile = self._profiles()(client.name, requested)
        whole = with_defaults(GenerationRequest(prompt=prompt), profile).prompt
        assert isinstance(whole, ChatPrompt)
        marked, rendered = await self._render(self._plan(whole, client, requested), client)
        return marked.pieces(rendered.text)

    def shows_tools(self, client: EngineClient, requested: str | None = None) -> bool:
        """Whether the model's template writes the tools of a chat. requested: the name in the request."""
        return knows_tools(
            self.template(client.name, client.facts.chat_templates, requested, with_tools=True)
        )

    def template(
        self,
        model: str,
        templates: Mapping[str, str],
        requested: str | None = None,
        *,
        with_tools: bool = False,
    ) -> str | None:
        """The chat template of a model, configured or its own; None if it has none.

        templates: its own, by name. requested: its name in the request.
        """
        override = self.template_overrides()(model, requested)
        return template_of(model, templates, override, with_tools=with_tools)

    def template_overrides(self) -> Callable[[str, str | None], TemplateOverride | None]:
        """The configured templates as they are now: of a model, or of its variant by that name. May read files."""
        profile_of = self._profiles()
        return lambda model, requested: profile_of(model, requested).template

    async def gbnf(self, constraint: Constraint, field: str) -> str:
        """See GrammarCache.gbnf. field: see GenerationRequest.constraint_field."""
        return await _about(field, self._grammars.gbnf(constraint))

    async def _compiled(self, constraint: Constraint, field: str) -> CompiledGrammar:
        with current_trace().spends("compile"):
            return await _about(field, self._grammars.compile(constraint))

    async def _with_field(
        self, error: InvalidRequest, prompt: ChatPrompt, request: GenerationRequest
    ) -> InvalidRequest:
        """A refusal of a chat's constraint or tools: the cache knows whether the constraint is refused by itself."""
        if request.constraint is not None:
            try:
                await self._compiled(request.constraint, request.constraint_field)
            except InvalidRequest as refused:
                return refused
        if prompt.tools and error.param == "response_format":
            error.param = "tools"
        return error

    async def explain(self, constraint: JsonSchemaConstraint) -> Explanation:
        return await self._grammars.explain(constraint)

    def _plan(self, prompt: ChatPrompt, client: EngineClient, requested: str | None) -> ChatPlan:
        if not prompt.messages:
            raise InvalidRequest("messages: at least one message is needed", param="messages")
        templates = client.facts.chat_templates
        template = self.template(client.name, templates, requested, with_tools=bool(prompt.tools))
        if template is None and client.name not in self._without_template:
            self._without_template.add(client.name)
            logger.warning("%s has no chat template: chats are rendered as ChatML", client.name)
        return ChatPlan.of(prompt, template)

    async def _render(self, plan: ChatPlan, client: EngineClient) -> tuple[MarkedMessages, RenderedChat]:
        """The template sees markers in place of images and sounds."""
        facts, prompt = client.facts, plan.prompt
        marked = await self._media.marked(prompt.messages, client)
        seen = replace(prompt, messages=marked.messages, tools=plan.shown_tools)
        render = RenderRequest(
            prompt=seen,
            template=plan.template,
            bos_token=facts.special_text("bos"),
            eos_token=facts.special_text("eos"),
            now=self._now(),
        )
        with current_trace().spends("template"):
            return marked, await self._renderer(render)

    async def _plain(
        self, request: GenerationRequest, begun: EngineRequest, client: EngineClient
    ) -> PreparedRequest:
        match request.prompt:
            case TextPrompt(text=text):
                prepared = PreparedRequest(replace(begun, prompt=(text,)))
            case PartsPrompt(parts=parts, add_special=add_special):
                pieces, media, warnings = await self._media.placed(parts, client)
                sent = replace(begun, prompt=pieces, add_special=add_special)
                prepared = PreparedRequest(sent, media, warnings=warnings)
            case TokenPrompt(ids=ids, param=param):
                prepared = PreparedRequest(
                    replace(begun, prompt=(ids,), add_special=False, prompt_param=param)
                )
            case InfillPrompt(prefix=prefix) as gap:
                infill = await infill_pieces(gap, client, request.stopping.max_tokens)
                prepared = PreparedRequest(replace(begun, prompt=(prefix,)))
                if infill is not None:
                    pieces, truncated = infill
                    sent = replace(begun, prompt=pieces, parse_special=False)
                    prepared = PreparedRequest(sent, infilled=True, truncated=truncated)
            case ChatPrompt():
                raise TypeError("a chat has no plain prompt")
        if request.constraint is None:
            return prepared
        grammar = await self._compiled(request.constraint, request.constraint_field)
        return replace(prepared, submitted=replace(prepared.submitted, guide=Guide(grammar=grammar)))

    async def _sampling(self, request: GenerationRequest, client: EngineClient) -> SamplingParams:
        sampling = request.sampling
        bias = dict(sampling.logit_bias)
        for text, value in request.logit_bias_text.items():
            tokenize = TokenizeRequest(text=text, add_special=False, parse_special=True)
            for token in (await client.ask(tokenize)).tokens:
                bias[token] = value
        n_vocab = client.facts.n_vocab
        for token in bias:
            if not 0 <= token < n_vocab:
                raise InvalidRequest(
                    f"logit_bias: token id {token} is outside the vocabulary (0 to {n_vocab - 1})",
                    param="logit_bias",
                )
        seed = self._seed() if sampling.seed is None else sampling.seed
        return replace(sampling, seed=seed, logit_bias=bias)


def _without_prompt(request: GenerationRequest, request_id: int, cache_salt: str) -> EngineRequest:
    """What the engine gets of any request. Its prompt, and what depends on the prompt or the model, follow."""
    sequences, logprobs = max(request.n, request.best_of), request.logprobs
    if sequences > request.n and logprobs is None:
        logprobs = 0  # the choice among them needs their mean log-probability
    return EngineRequest(
        id=request_id,
        prompt=(),
        stopping=request.stopping,
        n=sequences,
        logprobs=logprobs,
        prompt_logprobs=request.prompt_logprobs,
        return_tokens=request.return_tokens,
        reports_progress=request.reports_progress,
        vocabulary_entries=request.vocabulary_entries,
        skip_special_tokens=request.skip_special_tokens,
        cache_salt=cache_salt,
    )


async def _check_length(sent: EngineRequest, client: EngineClient) -> None:
    """Check as the worker does, but before images and sounds are decoded. Raises ContextLengthExceeded."""
    count = CountRequest(
        prompt=sent.prompt,
        add_special=sent.add_special,
        parse_special=sent.parse_special,
        prompt_param=sent.prompt_param,
    )
    n_prompt = (await client.ask(count)).tokens
    n_ctx, requested = client.facts.longest_ctx, sent.stopping.max_tokens
    if n_prompt > n_ctx or (n_prompt == n_ctx and requested != 0):
        raise ContextLengthExceeded(n_prompt, n_ctx, max_tokens=requested, param=sent.prompt_param)


async def _about(field: str, compiled: Awaitable[T]) -> T:
    try:
        return await compiled
    except InvalidRequest as error:
        raise error.about(field) from None


def _check_generates(facts: ModelFacts) -> None:
    if facts.is_embedding_model:
        raise UnsupportedOperation(
            "This model only makes embeddings and cannot generate text: ask another one, or this one for embeddings.",
            param="model",
        )
