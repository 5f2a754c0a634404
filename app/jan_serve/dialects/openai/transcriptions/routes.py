"""POST /v1/audio/transcriptions."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from jan_serve.audio_files.header import checked_header
from jan_serve.dialects.dialect import Services
from jan_serve.dialects.openai.transcriptions.parse import generation_request, transcription_form
from jan_serve.dialects.openai.transcriptions.render import TranscriptionAnswer
from jan_serve.dialects.openai.transcriptions.wire import FORM_SCHEMA, Transcription, TranscriptionRequest
from jan_serve.dialects.shared.answers import answer
from jan_serve.dialects.shared.default_errors import error_body
from jan_serve.errors import InvalidAudio
from jan_serve.generation.media_files import of_field
from jan_serve.generation.service import GenerationService
from jan_serve.http.multipart import form_fields
from jan_serve.http.sse import SSE_RESPONSE


def add_transcription_route(router: APIRouter, services: Services, service: GenerationService) -> None:

    @router.post(
        "/v1/audio/transcriptions",
        tags=["OpenAI V1"],
        summary="Transcription",
        response_model=Transcription,
        responses={200: {"content": {"text/plain": {}, **SSE_RESPONSE}}},
        openapi_extra={
            "requestBody": {"content": {"multipart/form-data": {"schema": FORM_SCHEMA}}, "required": True}
        },
    )
    async def create_transcription(request: Request) -> Response:
        """Write down what a sound says."""
        fields = form_fields(request.headers.get("content-type", ""), await request.body())
        form = transcription_form(fields)
        renderer = TranscriptionAnswer(form, await _duration(form))
        events = service.generate(generation_request(form))
        reply = await answer(request, events, renderer, error_body, services.streams, stream=form.stream)
        if form.response_format == "text" and not form.stream:
            return PlainTextResponse(renderer.text + "\n")
        return reply


async def _duration(form: TranscriptionRequest) -> float | None:
    """In seconds, where the answer has it. Raises InvalidAudio."""
    if form.response_format != "verbose_json":
        return None
    try:
        return (await asyncio.to_thread(checked_header, form.file)).seconds
    except InvalidAudio as error:
        raise of_field(error, "file") from None
