"""Messages as the turns that chat templates know, and signatures of thoughts, which clients send back unread. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal

import msgspec

from jan_serve.core.messages import (
    DOCUMENT_NOTE,
    IMAGE_NOTE,
    ContentPart,
    DocumentPart,
    FunctionCall,
    ImagePart,
    Message,
    TextPart,
    ToolCall,
)
from jan_serve.dialects.anthropic.claude_clients import cut_billing_line
from jan_serve.dialects.anthropic.messages import wire
from jan_serve.dialects.anthropic.messages.wire import (
    Base64Source,
    Block,
    ContentSource,
    DocumentBlock,
    ImageBlock,
    OtherBlock,
    PlainTextSource,
    RedactedThinkingBlock,
    ResultBlock,
    SearchResultBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UrlSource,
)
from jan_serve.dialects.shared.thinking_fields import THOUGHT, UNREAD_THOUGHT
from jan_serve.errors import InvalidRequest, UnsupportedContent

SHOWN: Final = "jan-serve"
"""The signature of a thought that the answer shows: some clients drop thoughts without any."""


def signature_of(thought: str, *, shown: bool) -> str:
    return SHOWN if shown else THOUGHT.packed(thought)


def signed_thought(thinking: str, signature: str) -> str:
    """The text of a thinking block."""
    return thinking or THOUGHT.unpacked(signature) or ""


_BETWEEN: Final = "\n\n"
_ERROR: Final = "Error: "


class Conversation:
    """messages: for the template. warnings: parts that are left out. ends_with_result: the model answers a result."""

    def __init__(
        self,
        system: str | Sequence[TextBlock] | None,
        messages: Sequence[wire.InputMessage],
        *,
        strip_billing_line: bool = True,
    ) -> None:
        """Raises InvalidRequest and UnsupportedContent."""
        self.warnings: list[str] = []
        self._instructions = [system] if isinstance(system, str) else [block.text for block in system or ()]
        self._turns: list[tuple[Literal["user", "assistant"], list[Block]]] = []
        self._num_new = 0  # blocks of the last message
        self._fields: _Fields = {}
        for index, message in enumerate(messages):
            self._add(message, f"messages[{index}]")
        if not self._turns:
            raise InvalidRequest("messages: at least one message is needed", param="messages")
        self.ends_with_result = any(isinstance(block, ToolResultBlock) for block in self._turns[-1][1])
        instructions = _BETWEEN.join(text for text in self._instructions if text)
        if strip_billing_line:
            instructions = cut_billing_line(instructions)
        self.messages = (
            *((Message(role="system", content=instructions),) if instructions else ()),
            *(turn for role, blocks in self._turns for turn in self._translated(role, blocks)),
        )

    def _add(self, message: wire.InputMessage, where: str) -> None:
        blocks = _blocks(message.content)
        _note_fields(self._fields, blocks, f"{where}.content")
        foreign = next((block for block in blocks if isinstance(block, _FOREIGN[message.role])), None)
        if foreign is not None:
            article = "an" if message.role == "assistant" else "a"
            raise InvalidRequest(
                f"{where}: {article} {message.role}'s message cannot hold {foreign.type}", param="messages"
            )
        self.warnings += _left_out(blocks, where)
        if message.role != "system":
            self._append(message.role, blocks)
        elif any(role == "assistant" for role, _ in self._turns):
            reminder = f"<system-reminder>\n{self._text(blocks)}\n</system-reminder>"
            self._append("user", [TextBlock(type="text", text=reminder)])
        else:
            self._instructions.append(self._text(blocks))

    def _append(self, role: Literal["user", "assistant"], blocks: list[Block]) -> None:
        """Consecutive turns of one role are one turn."""
        self._num_new = len(blocks)
        if self._turns and self._turns[-1][0] == role:
            self._turns[-1][1].extend(blocks)
        else:
            self._turns.append((role, blocks))

    def _translated(self, role: str, blocks: Sequence[Block]) -> Iterable[Message]:
        if role == "assistant":
            yield _answer(blocks)
            return
        results = [block for block in blocks if isinstance(block, ToolResultBlock)]
        for result in results:
            yield Message(role="tool", content=self._result(result), tool_call_id=result.tool_use_id)
        if len(results) < len(blocks) or not blocks:
            # Rejecting what an agent read, or what was rejected before, would end the conversation.
            is_last = blocks is self._turns[-1][1] and not results
            num_old = len(blocks) - (self._num_new if is_last else 0)
            old = _parts(blocks[:num_old], self._fields, must_read=False)
            yield Message(role="user", content=_content((*old, *_parts(blocks[num_old:], self._fields))))

    def _result(self, result: ToolResultBlock) -> str | tuple[ContentPart, ...]:
        """What cannot be seen or read is a note: rejecting it would end the conversation."""
        parts = [
            msgspec.structs.replace(part, note=IMAGE_NOTE) if isinstance(part, ImagePart) else part
            for part in _parts(_blocks(result.content or ""), self._fields, must_read=False)
        ]
        if not result.is_error:
            return _content(parts)
        if parts and isinstance(parts[0], TextPart):
            return _content([TextPart(_ERROR + parts[0].text), *parts[1:]])
        return _content([TextPart(_ERROR), *parts])

    def _text(self, blocks: Iterable[Block | ResultBlock]) -> str:
        texts: list[str] = []
        for part in _parts(blocks, self._fields):
            if not isinstance(part, TextPart):
                raise UnsupportedContent(
                    f"{part.param}: a system message holds an image or a file", param=part.param
                )
            texts.append(part.text)
        return _BETWEEN.join(texts)


_ANSWERED: Final = (ThinkingBlock, RedactedThinkingBlock, ToolUseBlock)
_FOREIGN: Final[dict[str, tuple[type, ...]]] = {
    "user": _ANSWERED,
    "system": (*_ANSWERED, ToolResultBlock),
    "assistant": (ToolResultBlock, ImageBlock, DocumentBlock, SearchResultBlock),
}
"""Blocks that the messages of a role cannot hold."""


_TOOL_NAME: Final = "tool_reference"
"""What a search for tools found: the request lists these tools."""


def _left_out(blocks: Iterable[Block | ResultBlock], where: str) -> Iterator[str]:
    for block in blocks:
        match block:
            case OtherBlock() if block.type != _TOOL_NAME:
                yield f"{where}: {block.type[:60]} is not on this server, and left out"
            case ToolResultBlock(content=list() as inner):
                yield from _left_out(inner, where)
            case RedactedThinkingBlock():
                yield f"{where}: {UNREAD_THOUGHT}"
            case ThinkingBlock() if block.signature and not signed_thought(block.thinking, block.signature):
                yield f"{where}: {UNREAD_THOUGHT}"
            case _:
                pass


_Fields = dict[int, str]
"""Where the images and documents of a request are, by the id of their block, which outlives this. For errors: turns are
merged before their blocks are read."""


def _note_fields(fields: _Fields, blocks: Iterable[Block | ResultBlock], where: str) -> None:
    for index, block in enumerate(blocks):
        match block:
            case ImageBlock() | DocumentBlock(source=Base64Source()):
                fields[id(block)] = f"{where}[{index}].source"
            case ToolResultBlock(content=list() as inner):
                _note_fields(fields, inner, f"{where}[{index}].content")
            case DocumentBlock(source=ContentSource(content=list() as inner)):
                _note_fields(fields, inner, f"{where}[{index}].source.content")
            case _:
                pass


def _blocks(content: str | Sequence[Block | ResultBlock]) -> list[Block]:
    return [TextBlock(type="text", text=content)] if isinstance(content, str) else [*content]


def _content(parts: Iterable[ContentPart]) -> str | tuple[ContentPart, ...]:
    """A text if there are no images."""
    content: list[ContentPart] = []
    for part in parts:
        if content and isinstance(part, TextPart) and isinstance(content[-1], TextPart):
            content[-1] = TextPart(content[-1].text + _BETWEEN + part.text)
        else:
            content.append(part)
    if not content:
        return ""
    return content[0].text if len(content) == 1 and isinstance(content[0], TextPart) else tuple(content)


def _parts(
    blocks: Iterable[Block | ResultBlock], fields: _Fields, *, must_read: bool = True
) -> Iterable[ContentPart]:
    """The parts that a model reads of a user's turn or a result. Raises UnsupportedContent.

    must_read: a document that cannot be read is an error, not a note.
    """
    for block in blocks:
        match block:
            case TextBlock():
                yield TextPart(block.text)
            case ImageBlock():
                yield _image(block, fields.get(id(block), "messages"))
            case SearchResultBlock():
                texts = [part.text for part in block.content]
                yield TextPart(_BETWEEN.join([f"{block.title} ({block.source})", *texts]))
            case DocumentBlock():
                yield from _document(block, fields, must_read=must_read)
            case _:
                pass


def _image(block: ImageBlock, field: str) -> ImagePart:
    match block.source:
        case Base64Source(media_type=media_type, data=data):
            return ImagePart(f"data:{media_type};base64,{data}", field)
        case UrlSource(url=url):
            return ImagePart(url, field)
        case _:
            raise UnsupportedContent(
                f"{field}: an image of source file cannot be read: this server keeps no files; send base64",
                param=field,
            )


def _document(block: DocumentBlock, fields: _Fields, *, must_read: bool) -> Iterable[ContentPart]:
    yield from (TextPart(text) for text in (block.title, block.context) if text)
    match block.source:
        case PlainTextSource(data=text):
            yield TextPart(text)
        case ContentSource(content=content):
            yield from _parts(_blocks(content), fields)
        case Base64Source(data=data):
            yield DocumentPart(
                data, fields.get(id(block), "messages"), note=None if must_read else DOCUMENT_NOTE
            )
        case _ if not must_read:
            yield TextPart(DOCUMENT_NOTE)
        case source:
            raise UnsupportedContent(
                f"messages: a document of source {source.type} cannot be read here; send its base64 or its text"
                " (source of type base64, text or content)",
                param="messages",
            )


def _answer(blocks: Sequence[Block]) -> Message:
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[ToolCall] = []
    for block in blocks:
        match block:
            case TextBlock():
                texts.append(block.text)
            case ThinkingBlock():
                thoughts.append(signed_thought(block.thinking, block.signature))
            case ToolUseBlock():
                arguments = json.dumps(block.input, ensure_ascii=False)
                calls.append(ToolCall(block.id, FunctionCall(block.name, arguments)))
            case _:
                pass
    thought = _BETWEEN.join(text for text in thoughts if text)
    text = "".join(texts)
    return Message(
        role="assistant",
        content=text if text or not calls else None,
        reasoning_content=thought or None,
        tool_calls=tuple(calls),
    )
