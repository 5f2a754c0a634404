"""All routes of Ollama's API; here those that answer, and that show models and the server."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final, Literal, NotRequired

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from jan_serve.core.messages import NO_ARGUMENTS, FunctionCall, Message, Tool, ToolCall
from jan_serve.core.request import ChatPrompt, InfillPrompt, PartsPrompt, Prompt, TextPrompt
from jan_serve.dialects.dialect import Services
from jan_serve.dialects.model_store import ModelStore
from jan_serve.dialects.ollama import models
from jan_serve.dialects.ollama.common import (
    STREAMED,
    AnswerFields,
    Images,
    Job,
    ReplyLine,
    content_of,
    job_of,
    model_name,
    unloads,
)
from jan_serve.dialects.ollama.embed import add_embedding_routes
from jan_serve.dialects.ollama.errors import OllamaError
from jan_serve.dialects.ollama.management import add_management_routes, add_refusals, add_upload_routes
from jan_serve.dialects.ollama.models import listed_rows, loaded_rows, shown
from jan_serve.dialects.ollama.serving import OllamaCall, ReplyFacts, Serving, Shape
from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.documented_errors import MANAGING, documented_errors
from jan_serve.dialects.shared.generation_fields import ttl_s
from jan_serve.dialects.shared.wire_types import AtMost, FirstError, Int, Ints, WireModel
from jan_serve.errors import InvalidRequest
from jan_serve.http.json_body import JsonRoute
from jan_serve.http.replies import json_reply


class SentFunction(WireModel):
    name: str
    arguments: Annotated[
        dict[str, Any] | str | None, Field(description="An object; JSON text is accepted too.")
    ] = None


class SentCall(WireModel):
    """A call of an earlier turn."""

    id: str | None = None
    function: SentFunction


class SentMessage(WireModel):
    """tool_name, tool_call_id: the call that a tool's result answers; without both, results follow the calls' order."""

    role: str
    content: str | None = None
    thinking: str | None = None
    images: Images = None
    tool_calls: (
        Annotated[list[SentCall], FirstError(), AtMost(limits.MAX_TOOL_CALLS, "tool_calls")] | None
    ) = None
    tool_name: str | None = None
    tool_call_id: str | None = None


class OfferedFunction(WireModel):
    """A function that the model may call; parameters is a JSON Schema."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class OfferedTool(WireModel):
    type: str | None = None
    function: OfferedFunction


class OllamaChatRequest(AnswerFields):
    """A conversation to answer. Without messages, the model is loaded, or unloaded if keep_alive is 0."""

    messages: Annotated[list[SentMessage], FirstError(), AtMost(limits.MAX_MESSAGES, "messages")] | None = (
        None
    )
    tools: Annotated[list[OfferedTool], FirstError(), AtMost(limits.MAX_TOOLS, "tools")] | None = None


class OllamaMessage(TypedDict):
    role: Literal["assistant"]
    content: str
    thinking: NotRequired[str]
    tool_calls: NotRequired[list[OllamaCall]]


class OllamaChatReply(ReplyLine):
    message: OllamaMessage


def chat_job(body: OllamaChatRequest) -> Job:
    tools = tuple(
        Tool(
            name=tool.function.name,
            description=tool.function.description,
            parameters=tool.function.parameters or NO_ARGUMENTS,
        )
        for tool in body.tools or ()
    )
    return job_of(body, ChatPrompt(messages=tuple(messages_of(body.messages or ())), tools=tools), "chat")


def messages_of(sent: Sequence[SentMessage]) -> Iterator[Message]:
    """Results of tools get the id of their call: the one they name, else the first unanswered one of the last turn."""
    ids = (f"call_{number}" for number in itertools.count())
    unanswered: list[ToolCall] = []
    for index, message in enumerate(sent):
        content = content_of(message.content or "", message.images, f"messages[{index}].images")
        role = message.role.lower()
        if role == "tool":
            call = _answered(message, unanswered)
            if call is not None and call in unanswered:
                unanswered.remove(call)
            yield Message(
                role=role,
                content=content,
                name=message.tool_name or (call.function.name if call is not None else None),
                tool_call_id=call.id if call is not None else message.tool_call_id,
            )
            continue
        calls = tuple(_call(call, ids) for call in message.tool_calls or ())
        if role == "assistant":
            unanswered = list(calls)
        yield Message(
            role=role, content=content, tool_calls=calls, reasoning_content=message.thinking or None
        )


def _answered(message: SentMessage, unanswered: Sequence[ToolCall]) -> ToolCall | None:
    """The call that a result is for, None if there is none."""
    if message.tool_call_id:
        return next((call for call in unanswered if call.id == message.tool_call_id), None)
    named = (call for call in unanswered if call.function.name == message.tool_name)
    return next(named, unanswered[0] if unanswered and not message.tool_name else None)


def _call(call: SentCall, ids: Iterator[str]) -> ToolCall:
    arguments = call.function.arguments
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    return ToolCall(call.id or next(ids), FunctionCall(call.function.name, text))


class OllamaGenerateRequest(AnswerFields):
    """A text to answer or continue. Without a prompt, the model is loaded, or unloaded if keep_alive is 0."""

    prompt: str | None = None
    suffix: Annotated[str | None, Field(description="Text after the gap, for models that fill gaps.")] = None
    images: Images = None
    system: Annotated[str | None, Field(description="System message.")] = None
    template: Annotated[
        str | None, Field(description="Only `{{ .Prompt }}`, which is as `raw`: templates are the model's.")
    ] = None
    raw: Annotated[bool | None, Field(description="Continue the prompt, without a template.")] = None
    context: Annotated[
        Ints | None,
        AtMost(limits.MAX_PROMPT_TOKENS, "context"),
        Field(description="Ignored: answers do not contain it, conversations belong to /api/chat."),
    ] = None
    width: Int | None = None
    height: Int | None = None
    steps: Int | None = None


class OllamaGenerateReply(ReplyLine):
    response: str
    thinking: NotRequired[str]


_PROMPT_ALONE: Final = re.compile(r"\s*\{\{-?\s*\.Prompt\s*-?\}\}\s*\Z")
_CONTEXT: Final = "context: ignored; send a conversation to /api/chat"


def has_no_prompt(body: OllamaGenerateRequest) -> bool:
    return not body.prompt and not body.suffix and not body.images


def generate_job(body: OllamaGenerateRequest) -> Job:
    if body.raw and (body.template or body.system or body.context):
        raise InvalidRequest("raw mode does not support template, system, or context", param="raw")
    if any(value for value in (body.width, body.height, body.steps)):
        raise InvalidRequest("width, height, steps: this server makes no images", param="width")
    return job_of(body, _prompt(body), "generate", (_CONTEXT,) if body.context else ())


def _prompt(body: OllamaGenerateRequest) -> Prompt:
    text = body.prompt or ""
    if body.suffix:
        return InfillPrompt(text, body.suffix)
    if body.raw or (body.template and _PROMPT_ALONE.match(body.template)):
        content = content_of(text, body.images, "images")
        return TextPrompt(content) if isinstance(content, str) else PartsPrompt(content)
    if body.template:
        raise InvalidRequest(
            "template: templates of requests are not supported; `raw` sends a prompt as it is, and the model's own"
            " template is a setting of the server",
            param="template",
        )
    system = [Message(role="system", content=body.system)] if body.system else []
    return ChatPrompt(
        messages=(*system, Message(role="user", content=content_of(text, body.images, "images")))
    )


def add_answer_routes(router: APIRouter, serving: Serving) -> None:
    @router.post("/api/chat", summary="Chat", response_model=OllamaChatReply, responses=STREAMED)
    async def chat(request: Request, body: OllamaChatRequest) -> Response:
        """Answer the last message of a conversation. Without messages: load the model, or unload it."""
        if not body.messages:
            return await _load_or_unload(request, serving, body, message_shape)
        return await serving.answer(request, chat_job(body), message_shape, stream=body.stream is not False)

    @router.post("/api/generate", summary="Text", response_model=OllamaGenerateReply, responses=STREAMED)
    async def generate(request: Request, body: OllamaGenerateRequest) -> Response:
        """Answer a prompt, continue it (`raw`) or fill a gap (`suffix`). Without one: load the model, or unload it."""
        if has_no_prompt(body):
            return await _load_or_unload(request, serving, body, text_shape)
        return await serving.answer(request, generate_job(body), text_shape, stream=body.stream is not False)


async def _load_or_unload(request: Request, serving: Serving, body: AnswerFields, shape: Shape) -> Response:
    """Answer a request without a prompt: one body, streamed or not."""
    name = model_name(body)
    head = ReplyFacts(name, shape, serving.now)
    if unloads(body):
        await serving.unload(request, name)
        reason = "unload"
    else:
        await serving.load(request, name, ttl_s(body.keep_alive))
        reason = "load"
    return json_reply({**head.body("", "", (), done=True), "done_reason": reason})


def message_shape(text: str, thought: str, calls: Sequence[OllamaCall]) -> dict[str, Any]:
    """The member of /api/chat: a message."""
    message: OllamaMessage = {"role": "assistant", "content": text}
    if thought:
        message["thinking"] = thought
    if calls:
        message["tool_calls"] = list(calls)
    return {"message": message}


def text_shape(text: str, thought: str, calls: Sequence[OllamaCall]) -> dict[str, Any]:
    """The members of /api/generate: text and thought and the others. calls: empty, because a text offers no tools."""
    return {"response": text, **({"thinking": thought} if thought else {})}


_COPILOT: Final = "GitHubCopilotChat/"

VERSION: Final = "0.32.0"
"""The release of Ollama whose API this is. Clients compare it: Copilot wants 0.6.4 at least."""


class OllamaVersion(TypedDict):
    version: str


class OllamaCloud(TypedDict):
    disabled: bool
    source: str


class OllamaStatus(TypedDict):
    """cloud: there is none."""

    cloud: OllamaCloud


class Recommendations(TypedDict):
    """Always empty: `jan-serve pull --list` suggests models."""

    recommendations: list[dict[str, Any]]


def add_server_routes(router: APIRouter) -> None:
    @router.get("/api/version", response_model=OllamaVersion)
    async def version() -> Response:
        """The release of Ollama whose API this is."""
        return json_reply({"version": VERSION})

    @router.get("/api/status", response_model=OllamaStatus)
    async def status() -> Response:
        """There are no models elsewhere."""
        return json_reply({"cloud": {"disabled": True, "source": "none"}})

    @router.get("/api/experimental/model-recommendations", response_model=Recommendations)
    async def recommendations() -> Response:
        """None."""
        return json_reply({"recommendations": []})


def add_model_routes(router: APIRouter, serving: Serving, store: ModelStore) -> None:
    @router.get("/api/tags", summary="Models", response_model=models.ModelRows)
    async def tags() -> Response:
        """All models that requests can name. Waits for no load."""
        models = await store.models()
        rows = await asyncio.to_thread(lambda: listed_rows(models, serving.preparer.template_overrides()))
        return json_reply({"models": rows})

    @router.get("/api/ps", summary="Models in memory", response_model=models.LoadedRows)
    async def ps() -> Response:
        """The models in memory."""
        rows = loaded_rows(await store.models(), serving.models.snapshot().models, serving.now())
        return json_reply({"models": rows})

    @router.post("/api/show", summary="Model", response_model=models.OllamaShowReply)
    async def show(request: Request, body: models.OllamaShowRequest) -> Response:
        """Header, template and abilities of a model, which is not loaded for that."""
        name = model_name(body)
        found = await store.details(name)
        template = serving.preparer.template(found.model.name, found.templates, name)
        titled = request.headers.get("user-agent", "").startswith(_COPILOT)
        return json_reply(shown(found, name, template, verbose=bool(body.verbose), titled=titled))


_ERRORS: Final = documented_errors(OllamaError, MANAGING)


class OllamaRoute(JsonRoute):
    def check_body(self, body: bytes) -> None:
        """Raises InvalidRequest for an empty body, in Ollama's words."""
        if not body.strip():
            raise InvalidRequest("missing request body")


def ollama_router(services: Services) -> APIRouter:
    router = APIRouter(route_class=OllamaRoute, tags=["Ollama"], responses=_ERRORS)
    serving = Serving(services)
    add_server_routes(router)
    add_answer_routes(router, serving)
    add_embedding_routes(router, serving)
    if services.store is not None:
        add_model_routes(router, serving, services.store)
        add_management_routes(router, serving, services.store)
        add_upload_routes(router, services.store)
    add_refusals(router)
    return router
