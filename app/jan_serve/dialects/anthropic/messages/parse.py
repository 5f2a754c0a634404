"""Messages request → GenerationRequest. Pure."""

from __future__ import annotations

from typing import Any

from jan_serve.core.constraint import Constraint, JsonSchemaConstraint
from jan_serve.core.messages import Tool, ToolChoice
from jan_serve.core.request import (
    RESPONSE_FORMAT,
    ChatPrompt,
    GenerationRequest,
    SamplingParams,
    StopConditions,
)
from jan_serve.dialects.anthropic.messages import wire
from jan_serve.dialects.anthropic.messages.conversation import Conversation
from jan_serve.dialects.anthropic.messages.wire import AnthropicTool, ClientTool, ToolByName, ToolMode
from jan_serve.dialects.shared.generation_fields import REASONING_BUDGETS, explicit_fields, stop_texts
from jan_serve.dialects.shared.sampling_defaults import LLAMA_CPP
from jan_serve.dialects.shared.wire_types import MAX_INT
from jan_serve.errors import InvalidRequest


def message_request(body: wire.CreateMessageRequest, *, strip_billing_line: bool = True) -> GenerationRequest:
    prompt, warnings = chat_prompt(body, strip_billing_line=strip_billing_line)
    constraint, field = _constraint(body)
    return GenerationRequest(
        model=body.model or None,
        prompt=prompt,
        sampling=SamplingParams(
            temperature=LLAMA_CPP.temperature if body.temperature is None else body.temperature,
            top_k=LLAMA_CPP.top_k if body.top_k is None else min(body.top_k, MAX_INT),
            top_p=LLAMA_CPP.top_p if body.top_p is None else body.top_p,
            min_p=LLAMA_CPP.min_p,
        ),
        stopping=StopConditions(
            max_tokens=min(body.max_tokens, MAX_INT),
            stop=stop_texts(body.stop_sequences, field="stop_sequences"),
        ),
        constraint=constraint,
        constraint_field=field,
        given=explicit_fields(body, stop_sequences="stop"),
        warnings=warnings,
    )


def shows_thoughts(body: wire.CreateMessageRequest) -> bool:
    """Whether the answer holds the text of thoughts."""
    return getattr(body.thinking, "display", None) != "omitted"


def chat_prompt(
    body: wire.CountTokensRequest, *, strip_billing_line: bool = True
) -> tuple[ChatPrompt, tuple[str, ...]]:
    """Also warnings of the parts that are left out."""
    conversation = Conversation(body.system, body.messages, strip_billing_line=strip_billing_line)
    tools, left_out = _tools(body)
    choice, thinks = body.tool_choice, _thinks(body, conversation)
    unknown = [
        f"{name}: this server has none, and left it out"
        for name in ("mcp_servers", "container")
        if getattr(body, name)
    ]
    prompt = ChatPrompt(
        messages=conversation.messages,
        tools=tools,
        tool_choice=_tool_choice(choice),
        parallel_tool_calls=choice is None or not choice.disable_parallel_tool_use,
        reasoning_budget=_reasoning_budget(body, thinks),
        template_kwargs=_template_kwargs(body, thinks),
    )
    return prompt, (*conversation.warnings, *left_out, *unknown)


def _tools(body: wire.CountTokensRequest) -> tuple[tuple[Tool, ...], list[str]]:
    """The client's tools, and warnings of the others."""
    found: dict[str, Tool] = {}
    warnings: list[str] = []
    for index, tool in enumerate(body.tools or ()):
        match tool:
            case AnthropicTool():
                warnings.append(f"tools[{index}]: {tool.type[:60]} is not on this server, and left out")
            case ClientTool():
                if tool.name in found:
                    raise InvalidRequest(
                        f"tools[{index}].name: a tool named {tool.name[:80]!r} is there already",
                        param="tools",
                    )
                found[tool.name] = Tool(
                    name=tool.name,
                    description=tool.description,
                    parameters=tool.input_schema,
                    strict=tool.strict,
                )
    return tuple(found.values()), warnings


def _tool_choice(choice: ToolMode | ToolByName | None) -> ToolChoice:
    match choice:
        case None | ToolMode(type="auto"):
            return ToolChoice("auto")
        case ToolMode(type="any"):
            return ToolChoice("required")
        case ToolMode():
            return ToolChoice("none")
        case ToolByName():
            return ToolChoice("named", choice.name)


def _thinks(body: wire.CountTokensRequest, conversation: Conversation) -> bool | None:
    """None: the template decides."""
    match body.thinking:
        case wire.ThinkingEnabled():
            return True
        case wire.ThinkingAdaptive():
            return None
        case wire.ThinkingOff(type="between_tools"):
            return conversation.ends_with_result
        case _:
            return False


def _reasoning_budget(body: wire.CountTokensRequest, thinks: bool | None) -> int | None:
    if thinks is False:
        return 0
    if isinstance(body.thinking, wire.ThinkingEnabled):
        return min(body.thinking.budget_tokens, MAX_INT)
    return REASONING_BUDGETS.get(_effort(body) or "")


def _template_kwargs(body: wire.CountTokensRequest, thinks: bool | None) -> dict[str, Any]:
    kwargs = {"reasoning_effort": _effort(body), "enable_thinking": thinks}
    return {name: value for name, value in kwargs.items() if value is not None}


def _effort(body: wire.CountTokensRequest) -> str | None:
    return body.output_config.effort if body.output_config is not None else None


def _constraint(body: wire.CountTokensRequest) -> tuple[Constraint | None, str]:
    """What the body demands of the answer's text, with the field that names it."""
    form = body.output_config.format if body.output_config is not None else None
    older = body.output_format
    if form is not None and older is not None and form != older:
        raise InvalidRequest(
            "output_format: contradicts `output_config.format`: one of them may constrain the text",
            param="output_format",
        )
    if form is not None:
        return JsonSchemaConstraint(form.schema_), "output_config.format"
    if older is not None:
        return JsonSchemaConstraint(older.schema_), "output_format"
    return None, RESPONSE_FORMAT
