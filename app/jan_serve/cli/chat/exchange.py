"""One question and its answer, with the calls of tools between them."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from jan_serve.cli.chat.chat_answer import AnswerDisplay, ChatAnswer, ask
from jan_serve.cli.chat.chat_tools import ChatTools
from jan_serve.cli.chat.conversation import Conversation, Message
from jan_serve.cli.client.server_client import ServerClient

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

    Ctrl-C ends an answer or a call, and the exchange: `answer.stopped`. Raises CommandError.
    """
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
        try:
            results = [_result(tools, call) for call in answer.calls]
        except KeyboardInterrupt:
            answer.stopped = True
            return Exchange(answer, steps)
        steps += [{"role": "assistant", "content": answer.text, "tool_calls": answer.calls}, *results]
        rounds += 1


def _result(tools: ChatTools, call: dict[str, Any]) -> Message:
    function = call["function"]
    result = tools.call(function["name"], function["arguments"])
    return {"role": "tool", "tool_call_id": call["id"], "content": result.content()}
