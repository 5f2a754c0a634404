"""Fields that switch and limit thinking, and earlier thoughts in a history, in the spellings of all servers. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Annotated, Any, Final, cast

import msgspec
from pydantic import BaseModel, Field

from jan_serve.dialects.shared.wire_types import MAX_INT, Between, Int, WireModel, wrong
from jan_serve.errors import InvalidRequest

_BUDGETS: Final = (
    "reasoning_budget",
    "reasoning_budget_tokens",
    "thinking_budget",
    "thinking_budget_tokens",
    "thinking_token_budget",
    "thinking.budget_tokens",
    "reasoning.max_tokens",
)
"""Paths of the maximum tokens of thought: ours, llama-server's, Qwen's, vLLM's, Anthropic's, OpenRouter's."""

_SWITCHES: Final[dict[str, dict[Any, bool]]] = {
    "enable_thinking": {True: True, False: False},
    "reasoning.enabled": {True: True, False: False},
    "thinking.type": {"enabled": True, "disabled": False},
}
"""Paths of what turns thinking on or off, and the meaning of its values: others say nothing."""

THINKING_NAMES: Final = tuple(dict.fromkeys(path.partition(".")[0] for path in (*_BUDGETS, *_SWITCHES)))

Budget = Annotated[Int, Between(-1)] | None


def _budget(server: str) -> Any:
    return Field(default=None, description=f"{server}'s name of `reasoning_budget`.")


class ThinkingFields(WireModel):
    """The budget of thoughts and the switch. A budget in two fields must be the same."""

    reasoning_budget: Budget = Field(
        None, description="Maximum tokens of thought. Null and -1 set no limit; 0 turns thinking off."
    )
    reasoning_budget_tokens: Budget = _budget("llama-server")
    thinking_budget: Budget = _budget("Qwen")
    thinking_budget_tokens: Budget = _budget("llama-server")
    thinking_token_budget: Budget = _budget("vLLM")
    enable_thinking: Annotated[
        bool | None, Field(description="Turns thinking on or off, if the template supports it.")
    ] = None
    thinking: Any = Field(
        None, description="An object with `type` (`enabled`, `disabled`) and `budget_tokens` (Anthropic)."
    )
    reasoning: Annotated[
        Any, Field(description="An object with `effort`, `max_tokens` and `enabled` (OpenRouter).")
    ] = None


def value_at(body: object, path: str) -> Any:
    """The value at a path of names, through models and objects; None if it is absent."""
    value: Any = body
    for name in path.split("."):
        if isinstance(value, dict):
            value = cast(dict[str, Any], value).get(name)
        else:
            value = getattr(value, name, None) if isinstance(value, BaseModel) else None
    return value


def thinking_budget(body: ThinkingFields) -> int | None:
    """Maximum tokens of thought as the request says; -1 is no limit, None that it says nothing.

    Raises InvalidRequest for two fields that differ, and for one that is no such number.
    """
    found: dict[str, int] = {}
    for path in _BUDGETS:
        value = value_at(body, path)
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < -1:
            raise InvalidRequest(f"{path}: must be an integer, -1 or more", param=path.partition(".")[0])
        found[path] = min(value, MAX_INT)
    if len(set(found.values())) > 1:
        first, *_, last = found
        raise wrong(last, f"contradicts `{first}`: both limit the tokens of thought")
    return next(iter(found.values()), None)


def thinking_switch(body: ThinkingFields) -> bool | None:
    """Whether the request turns thinking on or off; the first field that says so counts."""
    for path, meanings in _SWITCHES.items():
        value = value_at(body, path)
        if isinstance(value, bool | str) and value in meanings:
            return meanings[value]
    return None


class EarlierThought(WireModel):
    """What a message of the assistant thought, by its name in several servers' APIs."""

    reasoning_content: str | None = None
    reasoning: Annotated[Any, Field(description="vLLM's and OpenRouter's name of reasoning_content.")] = None
    reasoning_details: Annotated[
        Any, Field(description="Parts of a thought (OpenRouter); those that are encrypted are left out.")
    ] = None


def earlier_thought(message: EarlierThought) -> str | None:
    """The first field that holds a text."""
    for text in (message.reasoning_content, message.reasoning, _text_of(message.reasoning_details)):
        if isinstance(text, str) and text:
            return text
    return None


def _text_of(details: object) -> str:
    """Pieces of one part, which streams number, follow each other at once; parts are paragraphs."""
    parts: dict[tuple[str, object], str] = {}
    for place, item in enumerate(cast(Sequence[object], details) if isinstance(details, list) else ()):
        detail = cast(dict[str, Any], item) if isinstance(item, dict) else {}
        text = detail.get("text") or detail.get("summary")
        if isinstance(text, str):
            index = detail.get("index")
            key = ("index", index) if isinstance(index, int | float | str) else ("place", place)
            parts[key] = parts.get(key, "") + text
    return "\n\n".join(parts.values())


class PackedTexts(msgspec.Struct, frozen=True):
    """Texts of one kind, which `mark` names, as opaque ones to send back. Nothing is encrypted."""

    mark: str

    def packed(self, text: str) -> str:
        return self.mark + base64.b64encode(text.encode()).decode("ascii")

    def unpacked(self, packed: str | None) -> str | None:
        """The text; None if another server packed it, or it is damaged."""
        if packed is None or not packed.startswith(self.mark):
            return None
        try:
            return base64.b64decode(packed.removeprefix(self.mark), validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            return None


THOUGHT: Final = PackedTexts("jan-serve:thought:")
UNREAD_THOUGHT: Final = "a thought that this server cannot read is left out"
SUMMARY: Final = PackedTexts("jan-serve:summary:")
