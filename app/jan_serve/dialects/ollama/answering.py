"""What the routes of chats and texts share."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from jan_serve.dialects.ollama.parse_common import model_name, unloads
from jan_serve.dialects.ollama.render_common import ReplyHead, Shape
from jan_serve.dialects.ollama.serving import Serving
from jan_serve.dialects.ollama.wire_common import AnswerFields
from jan_serve.dialects.shared.keep_alive import keep_alive_s
from jan_serve.http.replies import json_reply

NDJSON_RESPONSE: Final[dict[str, Any]] = {"application/x-ndjson": {}}
"""For a route's OpenAPI responses."""


async def load_or_unload(request: Request, serving: Serving, body: AnswerFields, shape: Shape) -> Response:
    """For a request without a prompt: one body, streamed or not."""
    name = model_name(body)
    head = ReplyHead(name, shape, serving.now)
    if unloads(body):
        await serving.unload(request, name)
        reason = "unload"
    else:
        await serving.load(request, name, keep_alive_s(body.keep_alive))
        reason = "load"
    return json_reply({**head.body("", "", (), done=True), "done_reason": reason})
