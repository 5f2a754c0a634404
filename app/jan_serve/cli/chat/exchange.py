"""One question and its answer, streamed to the terminal, with the calls of tools between them."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec

from jan_serve.cli.chat.chat_tools import ChatTools
from jan_serve.cli.chat.conversation import Conversation, Message
from jan_serve.cli.client.server_client import ServerClient
from jan_serve.cli.output import output


class AnswerDisplay:
    """One answer; call end() after it."""

    def __init__(self, *, silent: bool = False) -> None:
        """silent: print nothing; the caller prints the complete answer."""
        self._show_reasoning = output.notes_on_terminal and not silent
        self._silent = silent
        self._in_reasoning = False
        self._at_line_start = True
        self._empty = True

    def text(self, piece: str) -> None:
        self._end_reasoning()
        if not self._silent:
            output.piece(piece)
            self._empty = False
            self._at_line_start = piece.endswith("\n")

    def reasoning(self, piece: str) -> None:
        if self._show_reasoning:
            self._in_reasoning = True
            output.aside(piece)
            self._at_line_start = piece.endswith("\n")

    def end(self) -> None:
        """End the line, also after a failure."""
        self._end_reasoning()
        if not self._silent and not self._empty and not self._at_line_start:
            output.piece("\n")

    def _end_reasoning(self) -> None:
        if self._in_reasoning:
            output.aside("\n" if self._at_line_start else "\n\n")
            self._in_reasoning = False
            self._at_line_start = True


class ChatAnswer(msgspec.Struct):
    """stopped: Ctrl-C ended it, and the text is incomplete. timings: with the field names of llama-server.
    calls: of tools, in OpenAI's notation."""

    model: str = ""
    text: str = ""
    reasoning: str = ""
    calls: list[dict[str, Any]] = msgspec.field(default_factory=list[dict[str, Any]])
    finish_reason: str | None = None
    stopped: bool = False
    usage: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    timings: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])

    def statistics(self) -> str:
        if not self.usage:
            return "no statistics: the answer is incomplete"
        cached = self.usage.get("prompt_tokens_details", {}).get("cached_tokens", 0)
        prompt = f"{self.usage['prompt_tokens']} prompt tokens" + (f" ({cached} cached)" if cached else "")
        rates = [
            f"{verb} at {self.timings[name]:.1f} tokens/s"
            for name, verb in (("prompt_per_second", "processed"), ("predicted_per_second", "generated"))
            if self.timings.get(name)
        ]
        return ", ".join([prompt, f"{self.usage['completion_tokens']} answer tokens", *rates])


def ask(client: ServerClient, request: Mapping[str, Any], display: AnswerDisplay) -> ChatAnswer:
    """Send a chat request. Ctrl-C stops the generation on the server too. Raises CommandError."""
    answer = ChatAnswer()
    texts: list[str] = []
    reasoning: list[str] = []
    try:
        with contextlib.closing(client.events("/v1/chat/completions", request)) as events:
            for event in events:
                answer.model = str(event.get("model") or answer.model)
                answer.usage = event.get("usage") or answer.usage
                answer.timings = event.get("timings") or answer.timings
                for choice in cast(list[dict[str, Any]], event.get("choices") or []):
                    answer.finish_reason = choice.get("finish_reason") or answer.finish_reason
                    delta: dict[str, Any] = choice.get("delta") or {}
                    if delta.get("reasoning_content"):
                        reasoning.append(delta["reasoning_content"])
                        display.reasoning(reasoning[-1])
                    if delta.get("content"):
                        texts.append(delta["content"])
                        display.text(texts[-1])
                    for part in cast(list[dict[str, Any]], delta.get("tool_calls") or []):
                        _add_call(answer.calls, part)
    except KeyboardInterrupt:
        answer.stopped = True
    answer.text = "".join(texts)
    answer.reasoning = "".join(reasoning)
    return answer


def _add_call(calls: list[dict[str, Any]], part: dict[str, Any]) -> None:
    """Add what an event says of one call: its beginning with the name, or more of its arguments."""
    named: dict[str, Any] = part.get("function") or {}
    if part["index"] == len(calls):
        called = {"name": named.get("name") or "", "arguments": ""}
        calls.append({"id": part.get("id") or "", "type": "function", "function": called})
    calls[part["index"]]["function"]["arguments"] += named.get("arguments") or ""


MAX_ROUNDS: Final = 30
"""Answers with calls for one question; a model may call for ever."""


class Exchange(msgspec.Struct):
    """steps: messages between the question and the last answer: answers with calls, each with the calls' results."""

    answer: ChatAnswer
    steps: list[Message]


def exchange(
    client: ServerClient,
    conversation: Conversation,
    question: str,
    tools: ChatTools | None = None,
    *,
    silent: bool = False,
) -> Exchange:
    """Ask, call what the model calls, and ask again until it answers without a call. Prints all of it unless silent.
    Ctrl-C ends an answer or a call, and the exchange: `answer.stopped`. Raises CommandError."""
    steps: list[Message] = []
    rounds = 0
    while True:
        request = conversation.request(question, steps)
        if tools is not None:
            request["tools"] = tools.functions()
            request["tool_choice"] = "auto" if rounds < MAX_ROUNDS else "none"
        display = AnswerDisplay(silent=silent)
        try:
            answer = ask(client, request, display)
        finally:
            display.end()
        if not answer.calls or answer.stopped or tools is None or rounds == MAX_ROUNDS:
            return Exchange(answer, steps)
        results: list[Message] = []
        try:
            for call in answer.calls:
                result = tools.call(call["function"]["name"], call["function"]["arguments"])
                results.append({"role": "tool", "tool_call_id": call["id"], "content": result.content()})
        except KeyboardInterrupt:
            answer.stopped = True
            return Exchange(answer, steps)
        steps += [{"role": "assistant", "content": answer.text, "tool_calls": answer.calls}, *results]
        rounds += 1
