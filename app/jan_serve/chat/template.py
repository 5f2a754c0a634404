"""Renders a ChatPrompt with the Jinja chat template of the model's GGUF file.

Some templates leave out the text of a turn with calls, or show it after them. Such a template renders the calls
alone, the first with a mark in its name; the text then takes its place before them.
"""

from __future__ import annotations

import hashlib
import json
import re
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, cast

import msgspec

from jan_serve.chat.call_arguments import arguments_text, object_arguments, read_arguments
from jan_serve.chat.call_form import PROBE_TOOLS, learned_form, probe_history
from jan_serve.chat.chat_format import ChatFormat
from jan_serve.chat.chatml import CHATML
from jan_serve.chat.detect import detect_format, knows_tools, writes_calls
from jan_serve.chat.history import shown_history
from jan_serve.chat.template_sandbox import compiled, rendered
from jan_serve.chat.template_traits import EFFORTS, PLAIN_EFFORTS, PROBE_ID, TemplateTraits, traits_of
from jan_serve.core.messages import (
    CallForm,
    FunctionCall,
    ImagePart,
    Message,
    TextPart,
    Tool,
    ToolCall,
    ToolChoice,
)
from jan_serve.core.request import THINKING_SWITCH, ChatPrompt, RenderedChat, RenderRequest
from jan_serve.errors import TemplateError, UnsupportedContent, ran_out_of_memory


def template_tools(tools: tuple[Tool, ...], *, plain: bool = False) -> list[dict[str, Any]] | None:
    """The tools in OpenAI's nesting; None if there are none, because templates test for None.

    plain: with all that a template may look for in a tool: a description of each tool and parameter, one type where
    there are several, objects with properties, and nothing that is null.
    """
    return [_tool(tool, plain) for tool in tools] or None


def template_tool_choice(choice: ToolChoice) -> str | dict[str, Any]:
    """The choice in OpenAI's notation: a word, or an object with the function's name."""
    if choice.mode == "named":
        return {"type": "function", "function": {"name": choice.name}}
    return choice.mode


def template_effort(effort: Any, traits: TemplateTraits) -> Any:
    """`reasoning_effort` as a word that the template takes: the nearest one, of two the higher. Others stay."""
    if effort not in EFFORTS or effort in traits.efforts:
        return effort
    if effort == "none" and traits.no_effort is not None:
        return traits.no_effort
    plain = PLAIN_EFFORTS.get(effort, effort)
    wanted = EFFORTS.index(plain)
    return min(reversed(traits.efforts), key=lambda word: abs(EFFORTS.index(word) - wanted), default=plain)


_OTHER_SWITCHES: Final = {
    "thinking": (True, False),
    "reasoning": (True, False),
    "thinking_mode": ("enabled", "disabled"),
    "thinking_budget": (None, 0),
}
"""Values that turn thinking on and off in templates without the usual switch; None: the variable stays absent."""


_HAS_DEFAULT: Final = re.compile(rf"\b{THINKING_SWITCH}\s*(is\s+(not\s+)?defined\b|\|\s*default\b)")
"""A template that says itself what an absent switch means."""


def thinking_values(prompt: ChatPrompt, source: str, traits: TemplateTraits) -> dict[str, Any]:
    """The variables that switch thinking, as the request says. Where it says nothing, the usual one is on in templates
    that do not foresee its absence: `not enable_thinking` would switch thinking off."""
    if prompt.asks_for_thoughts is None:
        return {} if _HAS_DEFAULT.search(source) else {THINKING_SWITCH: True}
    values: dict[str, Any] = {THINKING_SWITCH: prompt.thinks}
    if THINKING_SWITCH not in source:
        chosen = {name: on if prompt.thinks else off for name, (on, off) in _OTHER_SWITCHES.items()}
        values |= {name: value for name, value in chosen.items() if value is not None}
        if traits.no_effort is not None:
            values["reasoning_effort"] = template_effort("medium" if prompt.thinks else "none", traits)
    return values


def text_of(message: Message, index: int) -> str:
    """The message's text parts, concatenated. Raises UnsupportedContent for an image or audio."""
    if message.content is None or isinstance(message.content, str):
        return message.content or ""
    texts: list[str] = []
    for part in message.content:
        if not isinstance(part, TextPart):
            what = "an image" if isinstance(part, ImagePart) else "audio"
            raise UnsupportedContent(
                f"messages[{index}].content: this model reads text only, and the message holds {what}",
                param="messages",
            )
        texts.append(part.text)
    return "".join(texts)


def template_message(
    message: Message, index: int, traits: TemplateTraits, thought_field: str
) -> dict[str, Any]:
    """A turn as a mapping, whose absent keys stay absent, because templates test for them. Raises UnsupportedContent.

    index: of the turn. thought_field: the key of its reasoning.
    """
    text = text_of(message, index)
    content: Any = text
    if traits.null_content and not text and message.tool_calls:
        content = None
    elif traits.list_content:
        content = [{"type": "text", "text": text}]
    further = {
        "name": message.name,
        "tool_calls": [_tool_call(call, traits) for call in message.tool_calls] or None,
        "tool_call_id": message.tool_call_id,
        thought_field: message.reasoning_content,
    }
    present = {name: value for name, value in further.items() if value is not None}
    return {"role": message.role, "content": content, **present}


def _tool_call(call: ToolCall, traits: TemplateTraits) -> dict[str, Any]:
    values = object_arguments(call.function.arguments)
    arguments: Any = values if traits.object_arguments else arguments_text(call.function.arguments, values)
    function = {"name": call.function.name, "arguments": arguments}
    return {"id": call.id, "type": "function", "function": function}


def _tool(tool: Tool, plain: bool) -> dict[str, Any]:
    parameters = _plain_schema({"type": "object", **tool.parameters}) if plain else tool.parameters
    function = {
        "name": tool.name,
        "description": (tool.description or "") if plain else tool.description,
        "parameters": parameters,
        "strict": tool.strict,
    }
    return {
        "type": "function",
        "function": {key: value for key, value in function.items() if value is not None},
    }


def _plain_schema(schema: Any) -> dict[str, Any]:
    """The schema with one type at each place, in small letters, and schemas for all members of objects and arrays."""
    known = cast(dict[str, Any], schema) if isinstance(schema, dict) else {}
    plain = {name: value for name, value in known.items() if value is not None}
    kinds: Any = plain.pop("type", None)
    words = cast(list[Any], kinds) if isinstance(kinds, list) else [kinds]
    kind = next((word.lower() for word in words if isinstance(word, str) and word.lower() != "null"), None)
    if kind is not None:
        plain["type"] = kind
    if kind == "object" or "properties" in plain:
        properties: Any = plain.get("properties")
        members = cast(dict[str, Any], properties) if isinstance(properties, dict) else {}
        plain["properties"] = {name: _plain_schema(part) for name, part in members.items()}
        for part in plain["properties"].values():
            part["description"] = part["description"] if isinstance(part.get("description"), str) else ""
    if kind in ("object", "array"):
        of_members = "items" if kind == "array" else "additionalProperties"
        plain[of_members] = _plain_schema(plain.get(of_members))
    return plain


_SOME_DAY: Final = datetime(2000, 1, 1, tzinfo=UTC)


class SetApart(msgspec.Struct, frozen=True):
    """The text of a turn, and the mark before the name of its first call."""

    mark: str
    text: str
    call_id: str


def set_apart(messages: tuple[Message, ...]) -> tuple[tuple[Message, ...], list[SetApart]]:
    """The messages without the texts of turns with calls. Raises UnsupportedContent."""
    shown: list[Message] = []
    texts: list[SetApart] = []
    for index, message in enumerate(messages):
        text = text_of(message, index)
        if message.tool_calls and text:
            first, *others = message.tool_calls
            # Derived from the text, so that no word of the chat is one by accident.
            digest = hashlib.sha256(f"{index} {text}".encode("utf-8", "surrogatepass")).hexdigest()[:16]
            apart = SetApart(f"before{digest}", text, first.id)
            function = FunctionCall(apart.mark + first.function.name, first.function.arguments)
            calls = (ToolCall(first.id, function), *others)
            message = msgspec.structs.replace(message, content=None, tool_calls=calls)
            texts.append(apart)
        shown.append(message)
    return tuple(shown), texts


def with_texts(
    rendered: str, texts: list[SetApart], opening: str, chat_format: ChatFormat, *, name_first: bool = True
) -> str:
    """The prompt with the texts before their calls. opening, name_first: as in TemplateTraits."""
    pieces: list[str] = []
    for apart in texts:
        before, mark, rest = rendered.partition(apart.mark)
        if not mark:  # the template leaves the turn out
            continue
        own = opening.replace(PROBE_ID, apart.call_id)
        at = _start_of_calls(before, own, chat_format) if name_first else max(before.rfind(own), 0)
        pieces += [before[:at], _as_written(apart.text, before[at:], chat_format), before[at:]]
        rendered = rest
    text = "".join([*pieces, rendered])
    marks = "|".join(apart.mark for apart in texts)
    return re.sub(marks, "", text) if marks else text


def _start_of_calls(before: str, opening: str, chat_format: ChatFormat) -> int:
    """Where a turn's calls begin, in the prompt before the name of its first call."""
    message = chat_format.calls.after_thought
    if message and message in before:
        return before.rindex(message) + len(message)
    # Some templates count the calls.
    pattern = re.sub(r"\d+", lambda _: r"\d+", re.escape(opening))
    counted = re.search(f"(?:{pattern})$", before[-2 * len(opening) :])
    if counted is not None:
        return len(before) - len(counted[0])
    same = 0
    while same < min(len(before), len(opening)) and before[-1 - same] == opening[-1 - same]:
        same += 1
    return len(before) - same


def _as_written(text: str, opening: str, chat_format: ChatFormat) -> str:
    """The text as the model writes it before calls: in a message of its own where calls have one."""
    message = chat_format.calls.after_thought
    if message and chat_format.thought is not None:
        opens = chat_format.text_before_calls_opens or chat_format.text_opens
        return f"{opens}{text}{chat_format.thought.closes[0]}{message}"
    is_token = re.match(r"\[|<\W", opening) is not None
    return text if is_token or text.endswith("\n") else f"{text}\n"


def render_prompt(request: RenderRequest) -> str:
    """The prompt as text, up to the start of the answer; a final assistant message is continued.

    Time and memory depend on the template: see `template_sandbox`. Raises UnsupportedContent, and TemplateError,
    with the template's own message if it rejects the messages.
    """
    prompt, source = request.prompt, request.template or CHATML
    chat_format = detect_format(request.template)
    traits = traits_of(source)
    messages, tools = shown_history(
        prompt.messages,
        prompt.tools,
        traits,
        chat_format,
        knows_tools=knows_tools(request.template) and traits.tools,
        writes_calls=writes_calls(request.template),
    )
    messages, partial = _split_partial_answer(messages) if prompt.continues_answer else (messages, None)
    if not traits.calls_last and messages[-1:] and messages[-1].tool_calls:
        messages = (*messages, Message(role="user", content=""))
    messages, texts = (messages, []) if traits.call_opening is None else set_apart(messages)
    opens, kwargs = prompt.opens_answer or partial is not None, prompt.template_kwargs
    if partial is not None and prompt.asks_for_thoughts is None and _has_thought(partial, chat_format):
        kwargs = {**kwargs, THINKING_SWITCH: True}
    prompt = msgspec.structs.replace(
        prompt, messages=messages, tools=tools, opens_answer=opens, template_kwargs=kwargs
    )
    text = _rendered(msgspec.structs.replace(request, prompt=prompt), source, chat_format)
    text = with_texts(text, texts, traits.call_opening or "", chat_format, name_first=traits.name_first)
    return text if partial is None else text + _partial_answer(partial, chat_format, text)


def _rendered(request: RenderRequest, source: str, chat_format: ChatFormat) -> str:
    """Render with the tools as they are; with plain schemas where the template fails on those."""
    template = compiled(source)
    try:
        return rendered(template, _values(request, source, chat_format))
    except TemplateError:
        if request.prompt.tools:
            with suppress(TemplateError):
                return rendered(template, _values(request, source, chat_format, plain_tools=True))
        raise


def rendered_chat(request: RenderRequest) -> RenderedChat:
    """A prompt as of `render_prompt`, with the form in which the template writes calls."""
    form = _call_form(request.template) if request.template and request.prompt.tools else None
    return RenderedChat(render_prompt(request), form, _warnings(request.prompt.messages))


def _warnings(messages: tuple[Message, ...]) -> tuple[str, ...]:
    calls = [call for message in messages for call in message.tool_calls]
    broken = [call for call in calls if not read_arguments(call.function.arguments).whole]
    if not broken:
        return ()
    first = f"{broken[0].id[:60]!a} of {broken[0].function.name[:60]!a}"
    others = f" and of {len(broken) - 1} more" if len(broken) > 1 else ""
    return (
        f"the arguments of the earlier call {first}{others} are no JSON object: the model sees only the members at the"
        " beginning",
    )


@lru_cache(maxsize=128)
def _call_form(template: str) -> CallForm | None:
    """The form of a template's calls, cached. None where it is that of the format, or the template writes none."""
    chat_format, traits = detect_format(template), traits_of(template)
    if not (knows_tools(template) and traits.tools and writes_calls(template) and traits.calls):
        return None
    parallel = chat_format.calls.parallel and traits.parallel_calls
    prompt = ChatPrompt(messages=probe_history(parallel=parallel), tools=PROBE_TOOLS)
    try:
        shown = render_prompt(RenderRequest(prompt=prompt, template=template, now=_SOME_DAY))
    except TemplateError as error:
        if ran_out_of_memory(error):
            raise  # as in `traits_of`
        return None
    return learned_form(chat_format, shown, parallel=parallel)


def _split_partial_answer(messages: tuple[Message, ...]) -> tuple[tuple[Message, ...], Message | None]:
    last = messages[-1] if len(messages) > 1 else None
    if last is None or last.role != "assistant" or last.tool_calls:
        return messages, None
    return messages[:-1], last


def _opening(message: Message, chat_format: ChatFormat) -> str | None:
    """The mark by which the content begins with a thought."""
    thought, content = chat_format.thought, text_of(message, 0).lstrip()
    marks = (mark.strip() for mark in thought.opens) if thought is not None else ()
    return next((mark for mark in marks if content.startswith(mark)), None)


def _has_thought(message: Message, chat_format: ChatFormat) -> bool:
    return bool(message.reasoning_content) or _opening(message, chat_format) is not None


def _partial_answer(message: Message, chat_format: ChatFormat, text: str) -> str:
    """The partial answer, after its thought if it has one, there or at the beginning of its content."""
    thought, content = chat_format.thought, text_of(message, 0)
    if thought is None:
        return chat_format.text_opens + content
    is_open = chat_format.prompt_opens_thought(text)
    after_thought = chat_format.calls.after_thought or "\n\n"
    opening = _opening(message, chat_format)
    pieces: list[str] = []
    if message.reasoning_content:
        pieces += [] if is_open else [thought.opens[0], "\n"]
        pieces += [message.reasoning_content, "\n", thought.closes[0], after_thought]
    elif opening is not None:
        return content.lstrip().removeprefix(opening).lstrip() if is_open else content
    elif is_open:
        pieces += [thought.closes[0], after_thought]
    return "".join([*pieces, chat_format.text_opens, content])


def _values(
    request: RenderRequest, source: str, chat_format: ChatFormat, *, plain_tools: bool = False
) -> dict[str, Any]:
    prompt, traits = request.prompt, traits_of(source)
    tools = template_tools(prompt.tools, plain=plain_tools)
    if tools is None and not traits.no_tools:
        tools = []
    kwargs = dict(prompt.template_kwargs)
    if "reasoning_effort" in kwargs:
        kwargs["reasoning_effort"] = template_effort(kwargs["reasoning_effort"], traits)
    return {
        # FireFunction's template reads these two, Llama's the date.
        "functions": json.dumps([tool["function"] for tool in tools], indent=4) if tools else "[]",
        "datetime": request.now.strftime("%b %d %Y"),
        "date_string": request.now.strftime("%d %b %Y"),
        **thinking_values(prompt, source, traits),
        **{name: value for name, value in kwargs.items() if name != THINKING_SWITCH or value is not None},
        "messages": [
            template_message(message, index, traits, chat_format.thought_field)
            for index, message in enumerate(prompt.messages)
        ],
        "tools": tools,
        "tool_choice": template_tool_choice(prompt.tool_choice),
        "bos_token": request.bos_token,
        "eos_token": request.eos_token,
        "add_generation_prompt": prompt.opens_answer,
        "strftime_now": request.now.strftime,
    }
