"""The stream of a tool call in TGI's chat: first its name, then its arguments piece by piece. Pure."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from typing import Final

from jan_serve.core.events import Completed, Finished, GenerationEvent, Started, TextDelta
from jan_serve.dialects.tgi.chat.render import chunk_of, finish_reason, usage_chunk
from jan_serve.dialects.tgi.chat.tools import NO_TOOL
from jan_serve.dialects.tgi.chat.wire import ChatChunk, ChatRequest, ToolCallPart
from jan_serve.dialects.tgi.errors import ToolFailed
from jan_serve.dialects.tgi.generate.render import Ending, Generated
from jan_serve.dialects.tgi.reply_head import ReplyHead

_HEAD: Final = re.compile(r'\s*\{\s*"function"\s*:\s*\{\s*"_name"\s*:\s*("(?:[^"\\]|\\.)*")\s*([,}])')
_MAY_END: Final = re.compile(r"[\s}]*\Z")


class CallPieces:
    """Reads `{"function":{"_name":"f",…}}`: the complete name, then the arguments without the outer brace."""

    def __init__(self) -> None:
        self.name: str | None = None
        self._text = ""

    def feed(self, text: str) -> str:
        """Add text. Returns the next certain part of the arguments, as JSON text."""
        self._text += text
        if self.name is not None:
            return self._released()
        found = _HEAD.match(self._text)
        if found is None:
            return ""
        self.name = json.loads(found[1])
        self._text = self._text[found.end() if found[2] == "," else found.start(2) :]
        return "{" + self._released()

    def finish(self, *, complete: bool) -> str:
        """Returns the rest, without the outer brace if the call is complete."""
        rest, self._text = self._text, ""
        return rest.rstrip().removesuffix("}").rstrip() if complete else rest

    def _released(self) -> str:
        """All but a possible end of the outer object."""
        ending = _MAY_END.search(self._text)
        at = len(self._text) if ending is None else ending.start()
        released, self._text = self._text[:at], self._text[at:]
        return released


class CallChunks:
    """The chunks of a call."""

    def __init__(self, body: ChatRequest, head: ReplyHead, ending: Ending) -> None:
        self._body = body
        self._head = head
        self._ending = ending
        self._pieces = CallPieces()
        self._generated = Generated()
        self._id = next_call_id(body)
        self._prompt_tokens = 0

    @property
    def declined(self) -> bool:
        """The model chose to call no tool. Then no chunk was made."""
        return self._pieces.name == NO_TOOL

    def chunks(self, event: GenerationEvent) -> Iterator[ChatChunk]:
        """Raises ToolFailed if a limit cut the call off before its name."""
        match event:
            case Started() as started:
                self._prompt_tokens = started.prompt_tokens
            case TextDelta() as delta:
                self._generated.add(delta, self._ending)
                named = self._pieces.name is not None
                arguments = self._pieces.feed(delta.text)
                if arguments and not self.declined:
                    yield self._part(None if named else self._pieces.name, arguments)
            case Finished() as finished:
                self._generated.add(finished, self._ending)
                if not self.declined:
                    yield from self._end()
            case Completed() if not self.declined:
                count = len(self._generated.tokens)
                yield from usage_chunk(self._body, self._head, self._prompt_tokens, count)
            case _:
                pass

    def _end(self) -> Iterator[ChatChunk]:
        reason = self._generated.reason
        if self._pieces.name is None:
            raise ToolFailed("Failed to parse generated text: the call was cut off before its name")
        rest = self._pieces.finish(complete=reason != "length")
        if rest:
            yield self._part(None, rest)
        # TGI sends no finish reason after a call, but agents wait for one.
        yield chunk_of(self._head, {"role": "assistant", "content": ""}, finish=finish_reason(reason))

    def _part(self, name: str | None, arguments: str) -> ChatChunk:
        part: ToolCallPart = {
            "index": 0,
            "id": self._id,
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        }
        return chunk_of(self._head, {"role": "assistant", "tool_calls": [part]})


def next_call_id(body: ChatRequest) -> str:
    """One more than the largest number among the calls of the chat so far; a new UUID if there is none."""
    ids = [str(call.get("id")) for message in body.messages for call in message.tool_calls or ()]
    numbers = [int(text) for text in ids if text.isascii() and text.isdigit() and len(text) < 10]
    return str(max(numbers) + 1) if numbers else str(uuid.uuid4())
