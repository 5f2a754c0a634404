"""All routes of TGI, at the root and strictly under /tgi; here those of hosting platforms and of the server."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeVar

from fastapi import APIRouter
from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticCustomError
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from jan_serve.core.events import Timings
from jan_serve.core.request import ChatPrompt
from jan_serve.dialects.dialect import Services
from jan_serve.dialects.shared.answers import answer_whole
from jan_serve.dialects.shared.documented_errors import documented_errors
from jan_serve.dialects.shared.wire_types import AtMost, FirstError, WireModel
from jan_serve.dialects.tgi.chat.parse import ChatReply, ChatRequest, chat_messages, chat_parameters
from jan_serve.dialects.tgi.chat.routes import add_chat_routes, serve_chat
from jan_serve.dialects.tgi.completions import (
    CompletionReply,
    CompletionRequest,
    add_completion_routes,
    serve_completions,
)
from jan_serve.dialects.tgi.errors import ErrorBody
from jan_serve.dialects.tgi.generate.parse import (
    CompatRequest,
    GenerateResponse,
    Info,
    ModelList,
    Parameters,
    Seed,
    Unsigned,
    max_tokens,
)
from jan_serve.dialects.tgi.generate.render import DOCKER_LABEL, TGI_VERSION, Collected
from jan_serve.dialects.tgi.generate.routes import add_native_routes, serve_compat
from jan_serve.dialects.tgi.metrics import TgiMetrics
from jan_serve.dialects.tgi.options import TgiOptions
from jan_serve.dialects.tgi.outline import PREFIX
from jan_serve.dialects.tgi.serving import NativeRequest, RequestLease, Serving, answer_headers
from jan_serve.http.disconnect import while_connected
from jan_serve.http.errors import HttpError, validation_problem
from jan_serve.http.guards.body import too_large
from jan_serve.http.json_body import JsonRoute
from jan_serve.http.metrics import page_headers
from jan_serve.http.replies import json_reply
from jan_serve.http.sse import STREAMED

_MAX_INSTANCES: Final = 128


class VertexParameters(WireModel):
    """All that is read of an instance's parameters."""

    max_new_tokens: Unsigned | None = None
    seed: Seed | None = None


class VertexInstance(WireModel):
    inputs: str
    parameters: VertexParameters | None = None


class VertexRequest(WireModel):
    """Texts and chats; each is read as the first of both forms that it fits."""

    instances: Annotated[list[dict[str, Any]], FirstError(), AtMost(_MAX_INSTANCES, "instances")]


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


_UNHEALTHY: ErrorBody = {"error": "unhealthy", "error_type": "healthcheck"}


def add_info_route(router: APIRouter, serving: Serving, prefix: str) -> None:
    @router.get(f"{prefix}/info", response_model=Info)
    async def info(request: Request) -> Response:
        """The default model, which is loaded for this, and the server's limits."""
        name, facts = await while_connected(request, serving.generation.facts(None))
        limits = serving.limits
        max_input, max_total = max_tokens(limits, facts)
        body: Info = {
            "model_id": name,
            "model_sha": None,
            "model_pipeline_tag": "text-generation",
            "max_concurrent_requests": limits.tgi_max_concurrent_requests,
            "max_best_of": limits.tgi_max_best_of,
            "max_stop_sequences": limits.tgi_max_stop_sequences,
            "max_input_tokens": max_input,
            "max_total_tokens": max_total,
            "validation_workers": 2,
            "max_client_batch_size": limits.tgi_max_client_batch_size,
            "router": "text-generation-router",
            "version": TGI_VERSION,
            "sha": None,
            "docker_label": DOCKER_LABEL,
            # llama.cpp's, with the number of parameters where it knows no name for the size
            "model_dtype": facts.description.replace("?B", f"{facts.n_params / 1e6:.3g}M"),
            "model_device_type": facts.device,
            "max_input_length": max_input,
            "waiting_served_ratio": 0.3,
            "max_batch_total_tokens": facts.n_ctx,
            "max_waiting_tokens": 20,
            "max_batch_size": facts.parallel,
        }
        return json_reply(body)


def add_mounted_facts(router: APIRouter, serving: Serving) -> None:
    """Routes of TGI whose root paths belong to the whole server."""

    async def health() -> Response:
        """Alive: an empty 200, or 503 while a model is failed."""
        if any(model.state == "failed" for model in serving.models.snapshot().models):
            return json_reply(_UNHEALTHY, 503)
        return Response()

    for path in ("/tgi", "/tgi/", "/tgi/health"):
        router.get(path, response_class=Response)(health)

    @router.get("/tgi/metrics", responses={200: {"content": {"text/plain": {}}}})
    async def metrics() -> Response:
        """Prometheus text exposition, the same as at the root."""
        return Response(serving.metrics_page(), headers=page_headers())

    @router.get("/tgi/v1/models", response_model=ModelList)
    async def models(request: Request) -> Response:
        """The model that is served."""
        name, _ = await while_connected(request, serving.generation.facts(None))
        entry = {"id": name, "object": "model", "created": 0, "owned_by": name}
        return json_reply({"object": "list", "data": [entry]})


_TEXT: Final[dict[str, Any]] = {"content": {"text/plain": {"schema": {"type": "string"}}}}
_ERRORS: Final = documented_errors(
    ErrorBody,
    (403, 404, 424, 429, 500, 503, 504),
    {
        **dict.fromkeys((400, 413, 415), _TEXT),
        401: {"description": "A key is needed; there is no body"},
        422: {"content": {"application/json": {}, "text/plain": {}}},
    },
)


def tgi_router(services: Services, limits: TgiOptions, metrics: TgiMetrics) -> APIRouter:
    class Limited(JsonRoute):
        def check_body(self, body: bytes) -> None:
            """Raises HttpError for a body that is too large."""
            if len(body) > limits.tgi_max_body_bytes:
                raise too_large(limits.tgi_max_body_bytes)

    router = APIRouter(route_class=Limited, responses=_ERRORS, tags=["Text Generation Inference"])
    serving = Serving(services, limits, metrics)
    for prefix in ("", PREFIX):
        add_native_routes(router, serving, prefix)
        add_platform_routes(router, serving, prefix)
        add_info_route(router, serving, prefix)
    add_chat_routes(router, serving)
    add_completion_routes(router, serving)
    add_mounted_facts(router, serving)
    return router
