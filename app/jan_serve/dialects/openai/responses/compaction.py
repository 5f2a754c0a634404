"""POST /v1/responses/compact: the model sums a conversation up, for a client whose context is nearly full."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from jan_serve.dialects.openai.render_common import ReplyFacts
from jan_serve.dialects.openai.responses.items import new_id
from jan_serve.dialects.openai.responses.render import response_usage
from jan_serve.dialects.openai.responses.wire import (
    CreateResponseRequest,
    Input,
    InputItem,
    MessageItem,
    Reasoning,
    TextConfig,
)
from jan_serve.dialects.openai.responses.wire_reply import ResponseUsage, ShownItem
from jan_serve.dialects.shared.answers import FoldedAnswer
from jan_serve.dialects.shared.thinking_fields import SUMMARY
from jan_serve.errors import EngineFailure

_TASK: Final = (
    "The conversation above is about to be replaced by a summary of it. Write that summary for the one who goes on with"
    " the work: the goal and the wishes of the user, what is done and decided and why, what was found out (files,"
    " commands, values, errors), what is left to do, and the next step. Write the summary alone, and call no tool."
)


class CompactResponseRequest(CreateResponseRequest):
    """A conversation to sum up, in the form of a request that would continue it."""

    input: Annotated[Input, Field(description="As in `/v1/responses`. May be absent.")] = Field(
        default_factory=list[InputItem]
    )

    def asking(self) -> CreateResponseRequest:
        """The request for the summary: the prompt begins as the session's does, tools included, and is in the cache."""
        no_include: list[str] = []
        plain = {
            "tool_choice": "auto",
            "text": TextConfig(),
            "reasoning": Reasoning(effort="none"),
            "include": no_include,
        }
        return self.model_copy(update=plain)


class CompactionBody(TypedDict):
    """encrypted_content: the summary, in a form that only this server reads. Nothing is encrypted."""

    id: str
    type: Literal["compaction"]
    encrypted_content: str


class CompactedResponse(TypedDict):
    """The conversation in short: its messages but those of the assistant, and a summary of the rest."""

    id: str
    object: Literal["response.compaction"]
    created_at: int
    output: list[ShownItem | CompactionBody]
    usage: ResponseUsage
    model: NotRequired[str]


def task() -> MessageItem:
    return MessageItem(role="user", content=_TASK)


def kept_items(items: Sequence[InputItem]) -> list[InputItem]:
    return [item for item in items if isinstance(item, MessageItem) and item.role != "assistant"]


class CompactionRenderer(FoldedAnswer):
    def __init__(self, head: ReplyFacts, kept: list[ShownItem]) -> None:
        super().__init__()
        self._head = head
        self._kept = kept

    def body(self) -> CompactedResponse:
        """Raises EngineFailure if the model wrote nothing: the conversation would be lost."""
        self._head.served_by(self.started.model)
        summary = self.choices[0].text.strip()
        if not summary:
            raise EngineFailure("The model wrote no summary of the conversation.")
        compaction: CompactionBody = {
            "id": new_id("cmp"),
            "type": "compaction",
            "encrypted_content": SUMMARY.packed(summary),
        }
        return {
            "id": self._head.id,
            "object": "response.compaction",
            "created_at": self._head.created,
            "model": self._head.model,
            "output": [*self._kept, compaction],
            "usage": response_usage(self.completed.usage),
        }
