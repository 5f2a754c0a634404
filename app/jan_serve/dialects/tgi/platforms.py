"""Routes that hosting platforms call: /invocations (SageMaker) and /vertex (Vertex AI), at the root and under /tgi."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from fastapi import APIRouter
from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticCustomError
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from jan_serve.core.events import Timings
from jan_serve.core.request import ChatPrompt
from jan_serve.dialects.shared.answers import answer_whole
from jan_serve.dialects.shared.wire_types import AtMost, FirstError, WireModel
from jan_serve.dialects.tgi.chat.parse import chat_messages, chat_parameters
from jan_serve.dialects.tgi.chat.routes import serve_chat
from jan_serve.dialects.tgi.chat.wire import ChatReply, ChatRequest
from jan_serve.dialects.tgi.completions.routes import serve_completions
from jan_serve.dialects.tgi.completions.wire import CompletionReply, CompletionRequest
from jan_serve.dialects.tgi.generate.render import Collected
from jan_serve.dialects.tgi.generate.routes import serve_compat
from jan_serve.dialects.tgi.generate.wire import CompatRequest, GenerateResponse, Parameters, Seed, Unsigned
from jan_serve.dialects.tgi.job import NativeRequest, answer_headers
from jan_serve.dialects.tgi.limits import MAX_INSTANCES
from jan_serve.dialects.tgi.serving import RequestLease, Serving
from jan_serve.http.disconnect import while_connected
from jan_serve.http.errors import HttpError, validation_problem
from jan_serve.http.replies import json_reply
from jan_serve.http.sse import STREAMED


class VertexParameters(WireModel):
    """All that is read of an instance's parameters."""

    max_new_tokens: Unsigned | None = None
    seed: Seed | None = None


class VertexInstance(WireModel):
    inputs: str
    parameters: VertexParameters | None = None


class VertexRequest(WireModel):
    """Texts and chats; each is read as the first of both forms that it fits."""

    instances: Annotated[list[dict[str, Any]], FirstError(), AtMost(MAX_INSTANCES, "instances")]


class VertexReply(TypedDict):
    """The text for each instance, in order."""

    predictions: list[str]


M = TypeVar("M", bound=BaseModel)
Replies = list[GenerateResponse] | ChatReply | CompletionReply


def add_platform_routes(router: APIRouter, serving: Serving, prefix: str) -> None:
    @router.post(f"{prefix}/invocations", response_model=Replies, responses=STREAMED)
    async def invocations(request: Request, body: dict[str, Any]) -> Response:
        """A text, a chat or completions, by the form of the body."""
        if (native := _fitting(CompatRequest, body)) is not None:
            return await serve_compat(request, serving, native)
        if (chat := _fitting(ChatRequest, body)) is not None:
            return await serve_chat(request, serving, chat)
        if (completion := _fitting(CompletionRequest, body)) is not None:
            return await serve_completions(request, serving, completion)
        raise _fits_nothing("SagemakerRequest")

    @router.post(f"{prefix}/vertex", response_model=VertexReply)
    async def vertex(request: Request, body: VertexRequest) -> Response:
        """The texts for several instances at once."""
        async with serving.lease(request) as lease:
            natives = [await _native(request, lease, instance) for instance in body.instances]
            if not natives:
                return json_reply({"predictions": []})
            jobs = [await lease.job(native) for native in natives]
            answer = _Predictions([job.ending for job in jobs])
            timings: list[Timings] = []
            response = await answer_whole(request, lease.events(jobs, timings), answer)
            response.headers.update(answer_headers(jobs, timings, answer.generated_tokens))
            return response

    @router.get(f"{prefix}/ping", response_class=Response)
    async def ping() -> Response:
        """Alive."""
        return Response()


async def _native(request: Request, lease: RequestLease, value: dict[str, Any]) -> NativeRequest:
    if (instance := _fitting(VertexInstance, value)) is not None:
        fields = instance.parameters
        parameters = Parameters(
            do_sample=True,
            max_new_tokens=None if fields is None else fields.max_new_tokens,
            seed=None if fields is None else fields.seed,
        )
        return NativeRequest(instance.inputs, parameters)
    if (chat := _fitting(ChatRequest, value)) is None:
        raise _fits_nothing("VertexInstance")
    prompt = ChatPrompt(messages=chat_messages(chat, ""))
    text = await while_connected(request, _chat_text(lease, prompt))
    return NativeRequest(text, chat_parameters(chat), add_special=False)


async def _chat_text(lease: RequestLease, prompt: ChatPrompt) -> str:
    model = await lease.model()
    return await model.chat_text(prompt, lease.model_name)


def _fitting(model: type[M], value: dict[str, Any]) -> M | None:
    """None if the value does not fit. Raises if it is over a size limit of the model."""
    try:
        return model.model_validate(value)
    except ValidationError:
        return None


def _fits_nothing(name: str) -> HttpError:
    error = PydanticCustomError(
        "untagged", "data did not match any variant of untagged enum {name}", {"name": name}
    )
    entry = {"loc": ("body",), "msg": error.message(), "type": error.type}
    return HttpError(validation_problem([entry]))


class _Predictions(Collected):
    def body(self) -> VertexReply:
        return {"predictions": [sequence.text for sequence in self.sequences]}
