"""Wire types of /api/generate."""

from __future__ import annotations

from typing import Annotated, NotRequired

from pydantic import Field

from jan_serve.dialects.ollama.wire_common import AnswerFields, Images, ReplyLine
from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.wire_types import AtMost, Int, Ints


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
