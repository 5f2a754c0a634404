"""Wire types of /api/chat."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from jan_serve.dialects.ollama.render_common import OllamaCall
from jan_serve.dialects.ollama.wire_common import AnswerFields, Images, ReplyLine
from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.wire_types import AtMost, FirstError, WireModel


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
