"""llama-server's routes that editors use."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jan_serve import __version__
from jan_serve.core.models.model_facts import ModelFacts
from jan_serve.core.request import ChatPrompt
from jan_serve.dialects.dialect import Services
from jan_serve.dialects.openai.chat.parse import chat_request
from jan_serve.dialects.openai.chat.wire import CreateChatCompletionRequest
from jan_serve.dialects.openai.llama_server.infill import InfillRenderer, infill_request
from jan_serve.dialects.openai.llama_server.wire import (
    AppliedTemplate,
    InfillRequest,
    InfillResponse,
    LoraAdapter,
    Props,
)
from jan_serve.dialects.shared.answers import answer
from jan_serve.dialects.shared.default_errors import error_body
from jan_serve.generation.service import GenerationService
from jan_serve.http.disconnect import while_connected
from jan_serve.http.replies import json_reply
from jan_serve.http.sse import SSE_RESPONSE
from jan_serve.placement.report import advice, lines


def add_llama_routes(router: APIRouter, services: Services, generation: GenerationService) -> None:

    @router.post(
        "/infill",
        tags=["llama-server"],
        summary="Infill",
        response_model=InfillResponse,
        responses={200: {"content": SSE_RESPONSE}},
    )
    async def infill(request: Request, body: InfillRequest) -> Response:
        """Fill a gap in code."""
        events = generation.generate(infill_request(body))
        renderer, streams = InfillRenderer(body), services.streams
        return await answer(request, events, renderer, error_body, streams, stream=body.stream, done=b"")

    async def chat_text(model_name: str | None, prompt: ChatPrompt) -> str:
        async with generation.open(model_name) as model:
            return await model.chat_text(prompt, model_name)

    @router.post(
        "/apply-template",
        tags=["llama-server"],
        summary="Apply template",
        response_model=AppliedTemplate,
    )
    async def apply_template(request: Request, body: CreateChatCompletionRequest) -> Response:
        """Render a chat to the prompt that the model reads."""
        chat = chat_request(body)
        assert isinstance(chat.prompt, ChatPrompt)
        return json_reply({"prompt": await while_connected(request, chat_text(chat.model, chat.prompt))})

    @router.get("/props", tags=["llama-server"], summary="Props", response_model=Props)
    async def props(request: Request, model: str | None = None) -> Response:
        """Properties of a model; without a name, of the default model. Loads the model."""
        name, facts = await while_connected(request, generation.facts(model or None))
        return json_reply(_props(name, facts))

    @router.get(
        "/lora-adapters",
        tags=["llama-server"],
        summary="LoRA adapters",
        response_model=list[LoraAdapter],
    )
    async def lora_adapters(request: Request, model: str | None = None) -> Response:
        """List the adapters of a model by the ids that `lora` takes. They apply only to requests that choose them."""
        _, facts = await while_connected(request, generation.facts(model or None))
        return json_reply(
            [
                {"id": index, "name": adapter.name, "path": adapter.name, "scale": adapter.scale}
                for index, adapter in enumerate(facts.adapters)
            ]
        )


def _props(name: str, facts: ModelFacts) -> Props:
    def text(role: str) -> str:
        token = facts.special_tokens.get(role)
        return token.text if token is not None else ""

    answer: Props = {
        "default_generation_settings": {"n_ctx": facts.n_ctx, "params": {"n_predict": -1}},
        "total_slots": facts.parallel,
        "model_alias": name,
        "model_path": name,
        "chat_template": facts.chat_templates.get("default", ""),
        "bos_token": text("bos"),
        "eos_token": text("eos"),
        "modalities": {sense: sense in facts.modalities for sense in ("vision", "audio")},
        "build_info": f"jan-serve {__version__}",
        "placement": [*lines(facts.placement), *advice(facts.placement, facts.placement_warning)],
    }
    if "tool_use" in facts.chat_templates:
        answer["chat_template_tool_use"] = facts.chat_templates["tool_use"]
    return answer
