"""The history of a chat in the form that its template shows: no order of roles is refused, and no text is left out.

One pass for each of the template's limits. What a template shows by itself stays as it is.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable

import msgspec

from jan_serve.chat.call_layout import nine_characters
from jan_serve.chat.chat_format import ChatFormat
from jan_serve.chat.template_traits import TemplateTraits
from jan_serve.chat.tools_as_text import (
    joined_content,
    with_call_text,
    with_calls_as_text,
    with_results_as_text,
    with_tools_as_text,
)
from jan_serve.core.messages import Message, Tool, ToolCall

Messages = tuple[Message, ...]


def shown_history(
    messages: Messages,
    tools: tuple[Tool, ...],
    traits: TemplateTraits,
    chat_format: ChatFormat,
    *,
    knows_tools: bool,
    writes_calls: bool,
) -> tuple[Messages, tuple[Tool, ...]]:
    """The messages that the template shows in place of these, and the tools that it lists.

    knows_tools, writes_calls: as `detect` has them. Where they are false, tools, calls and results become text.
    """
    shows_calls = writes_calls and traits.calls and (traits.calls_alone or (knows_tools and bool(tools)))
    messages = with_results_at_their_calls(
        messages, one_call_a_turn=shows_calls and not traits.parallel_calls
    )
    if tools and traits.system_for_tools and all(message.role != "system" for message in messages[:1]):
        messages = (Message(role="system", content=""), *messages)
    if traits.system_role and not traits.late_system:
        messages = _with_one_system(messages)
    if not knows_tools:
        messages, tools = with_tools_as_text(messages, tools, chat_format, calls_too=not shows_calls), ()
    elif not shows_calls:
        messages = with_calls_as_text(messages, chat_format)
        messages = messages if traits.results else tuple(with_results_as_text(messages))
    if shows_calls and not (traits.orphan_results and traits.repeated_turns):
        messages = _with_orphans_as_text(messages)
    if traits.call_opening is not None and chat_format.calls.at_start and traits.repeated_turns:
        messages = _with_text_in_turns_of_its_own(messages)
    if not traits.empty_turns:
        messages = tuple(
            message
            for message in messages
            if message.role != "assistant" or message.content or message.tool_calls
        )
    if not (traits.system_role and traits.system_before_results):
        messages = _with_system_in_user(messages, last=traits.system_role)
    if not (traits.any_start and traits.repeated_turns) or not messages:
        messages = _with_user_first(messages)
    if not traits.repeated_turns:
        messages = _alternating(messages, chat_format)
    if traits.short_ids:
        messages = tuple(_with_short_ids(message) for message in messages)
    return messages, tools


def with_results_at_their_calls(messages: Messages, *, one_call_a_turn: bool) -> Messages:
    """Each result after the turn that it answers, in the order of the turn's calls; results of unknown calls last.

    one_call_a_turn: turns of several calls become turns of one call, each followed by its result.
    """
    owners = _owners(messages)
    messages = _with_own_ids(messages)
    results: dict[int, list[tuple[int, Message]]] = defaultdict(list)
    for position, (turn, number) in owners.items():
        result, calls = messages[position], messages[turn].tool_calls
        call = calls[number] if number < len(calls) else None
        if call is None and result.name is None:
            name = next((each.function.name for each in calls if each.id == result.tool_call_id), None)
            result = msgspec.structs.replace(result, name=name)
        results[turn].append((number, _result(result, call)))
    shown: list[Message] = []
    for position, message in enumerate(messages):
        if position in owners:
            continue
        answers = sorted(results[position], key=lambda answer: answer[0])
        if not one_call_a_turn or len(message.tool_calls) < 2:
            shown += [_result(message) if is_result(message) else message, *(result for _, result in answers)]
            continue
        for number, call in enumerate(message.tool_calls):
            first = message if number == 0 else Message(role="assistant")
            shown.append(msgspec.structs.replace(first, tool_calls=(call,)))
            shown += [result for owner, result in answers if owner == number]
        shown += [result for owner, result in answers if owner == len(message.tool_calls)]
    return _with_new_ids(shown)


def _with_new_ids(messages: Iterable[Message]) -> Messages:
    """Another id for each result whose id one after an earlier turn has: templates leave out repeated ids."""
    shown: list[Message] = []
    seen: set[str | None] = set()
    here: set[str | None] = set()
    for position, message in enumerate(messages):
        if is_result(message):
            here.add(message.tool_call_id)
            if message.tool_call_id in seen:
                message = msgspec.structs.replace(message, tool_call_id=f"{message.tool_call_id}-{position}")
        else:
            seen |= here
            here = set()
        shown.append(message)
    return tuple(shown)


def _with_own_ids(messages: Messages) -> Messages:
    """The messages with another id for each call whose id an earlier one has: agents count them from 0 in each turn."""
    taken = {call.id for message in messages for call in message.tool_calls}
    if len(taken) == sum(len(message.tool_calls) for message in messages):
        return messages
    seen: Counter[str] = Counter()
    shown: list[Message] = []
    for message in messages:
        calls: list[ToolCall] = []
        for call in message.tool_calls:
            own, number = call.id, seen[call.id]
            while number and own in taken:
                number += 1
                own = f"{call.id}-{number}"
            seen[call.id] = max(number, 1)
            taken.add(own)
            calls.append(msgspec.structs.replace(call, id=own))
        shown.append(msgspec.structs.replace(message, tool_calls=tuple(calls)))
    return tuple(shown)


def _owners(messages: Messages) -> dict[int, tuple[int, int]]:
    """Position of the turn and number of the call that each result answers, by the result's position.

    An id belongs to the latest turn in which it is unanswered, as agents count ids from 0 in each turn, and there to
    its calls in their order. A result without an id goes by the name of its tool, and without both it is the next
    call's. One of an unknown call belongs to the turn before it, with a number after its calls, and to none if that has
    no calls.
    """
    waiting: dict[tuple[str, str], list[deque[tuple[int, int]]]] = defaultdict(list)
    owners: dict[int, tuple[int, int]] = {}
    answered: set[tuple[int, int]] = set()
    turn: int | None = None
    for position, message in enumerate(messages):
        if is_result(message):
            key = (
                ("name", message.name or "") if message.tool_call_id is None else ("id", message.tool_call_id)
            )
            owner = _unanswered(waiting[key], answered)
            if owner is None and turn is not None:
                owner = (turn, len(messages[turn].tool_calls))
            if owner is not None:
                owners[position] = owner
                answered.add(owner)
        elif message.role == "assistant":
            turn = position if message.tool_calls else None
            calls: dict[tuple[str, str], deque[tuple[int, int]]] = defaultdict(deque)
            for number, call in enumerate(message.tool_calls):
                calls["id", call.id].append((position, number))
                calls["name", call.function.name].append((position, number))
                calls["name", ""].append((position, number))
            for key, queue in calls.items():
                waiting[key].append(queue)
    return owners


def _unanswered(
    turns: list[deque[tuple[int, int]]], answered: set[tuple[int, int]]
) -> tuple[int, int] | None:
    """Take the first call of the latest turn that has one without a result."""
    while turns:
        while turns[-1]:
            call = turns[-1].popleft()
            if call not in answered:
                return call
        turns.pop()
    return None


def is_result(message: Message) -> bool:
    """Whether it is the result of a call; `function` is OpenAI's earlier name of the role."""
    return message.role in ("tool", "function")


def _result(message: Message, call: ToolCall | None = None) -> Message:
    """The result with the id of its call and the tool's name, which some templates show."""
    call_id = call.id if call is not None else message.tool_call_id or ""
    name = message.name or (call.function.name if call is not None else None)
    return msgspec.structs.replace(message, role="tool", tool_call_id=call_id, name=name)


def _with_orphans_as_text(messages: Messages) -> Messages:
    """Results of calls that the turn before them does not have become turns of the user."""
    shown: list[Message] = []
    calls: set[str] = set()
    for message in messages:
        if message.role == "assistant":
            calls = {call.id for call in message.tool_calls}
        orphan = is_result(message) and message.tool_call_id not in calls
        if orphan:
            calls = set()  # a turn of the user ends the results
        shown += with_results_as_text([message]) if orphan else [message]
    return tuple(shown)


def _with_text_in_turns_of_its_own(messages: Messages) -> Messages:
    """The text of a turn with calls as a turn before it, for models whose calls begin an answer."""
    shown: list[Message] = []
    for message in messages:
        if message.content and message.tool_calls:
            shown.append(msgspec.structs.replace(message, tool_calls=()))
            message = msgspec.structs.replace(message, content=None, reasoning_content=None)
        shown.append(message)
    return tuple(shown)


def _with_system_in_user(messages: Messages, *, last: bool) -> Messages:
    """System messages at the beginning of the user's turn after them; `last`: of the last turn."""
    turns = list(messages)
    final = next((at for at in reversed(range(len(turns))) if turns[at].role == "user"), None)
    if last and final is not None:
        system = [message for message in turns[:final] if message.role == "system"]
        turns = [message for message in turns[:final] if message.role != "system"] + system + turns[final:]
    shown: list[Message] = []
    after_system = False
    for message in turns:
        is_system = message.role == "system"
        turn = Message(role="user", content=message.content) if is_system else message
        if after_system and turn.role == "user":
            turn = msgspec.structs.replace(turn, content=joined_content(shown.pop().content, turn.content))
        shown.append(turn)
        after_system = is_system
    return tuple(shown)


def _with_one_system(messages: Messages) -> Messages:
    """Move the system messages before the first answer to the front, as one; later ones become part of a user's turn.

    Later ones keep their place, so that what is before them stays in the prefix cache.
    """
    if all(message.role != "system" for message in messages[1:]):
        return messages
    instructions: list[Message] = []
    turns: list[Message] = []
    answered = reminded = False
    for message in messages:
        if message.role == "system" and not answered:
            instructions.append(message)
            continue
        reminds = message.role == "system"
        turn = _reminder(message) if reminds else message
        if turns and (reminds or reminded) and turns[-1].role == turn.role:
            turns[-1] = _merged(turns[-1], turn)
        else:
            turns.append(turn)
        answered = answered or message.role == "assistant"
        reminded = reminds
    if not instructions:
        return tuple(turns)
    content = joined_content(*(message.content for message in instructions))
    return (msgspec.structs.replace(instructions[0], content=content), *turns)


def _reminder(message: Message) -> Message:
    content = joined_content("<system-reminder>", message.content, "</system-reminder>", between="\n")
    return Message(role="user", content=content)


def _with_user_first(messages: Messages) -> Messages:
    """An empty turn of the user before a history that begins with another one's. No words are invented."""
    start = next((at for at, message in enumerate(messages) if message.role != "system"), len(messages))
    if start < len(messages) and messages[start].role == "user":
        return messages
    return (*messages[:start], Message(role="user", content=""), *messages[start:])


def _alternating(messages: Messages, chat_format: ChatFormat) -> Messages:
    """Turns of the user and answers by turns, the user's first. Calls and results between them do not count."""
    shown: list[Message] = []
    turn = "assistant"
    for message in messages:
        last = shown[-1] if shown else None
        if message.role not in ("user", "assistant"):
            shown.append(message)
        elif last is not None and last.role == message.role and not last.tool_calls:
            shown[-1] = _merged(last, message)
            turn = "user" if message.tool_calls else turn
        elif message.tool_calls:
            shown.append(message)
        elif message.role != turn:
            shown.append(message)
            turn = message.role
        elif last is not None and is_result(last):
            # The user goes on after results, or the system does in the user's name.
            shown[-1] = msgspec.structs.replace(last, content=joined_content(last.content, message.content))
        elif last is not None and last.tool_calls:
            shown[-1] = with_call_text(last, chat_format)
            shown.append(message)
        else:
            shown += [Message(role="user", content=""), message]
    return tuple(shown)


def _merged(first: Message, second: Message) -> Message:
    thoughts = [turn.reasoning_content for turn in (first, second) if turn.reasoning_content]
    return msgspec.structs.replace(
        first,
        content=joined_content(first.content, second.content),
        name=first.name if first.name == second.name else None,
        tool_calls=second.tool_calls,
        reasoning_content="\n\n".join(thoughts) or None,
    )


def _with_short_ids(message: Message) -> Message:
    calls = tuple(msgspec.structs.replace(call, id=nine_characters(call.id)) for call in message.tool_calls)
    result = nine_characters(message.tool_call_id or "") if is_result(message) else None
    return msgspec.structs.replace(message, tool_calls=calls, tool_call_id=result)
