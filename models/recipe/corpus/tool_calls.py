"""Chats with tools: the right call, no call where none fits, and an answer from the tool's result."""

from __future__ import annotations

import json
from dataclasses import replace

from models.recipe.corpus import facts, identity, numbers, small_talk, tool_specs, unknown
from models.recipe.corpus.conversation import Conversation, Turn, tool_call
from models.recipe.corpus.draw import Draw, on_our_side
from models.recipe.corpus.tool_specs import HAND_WRITTEN, Spec, Value

_ERRORS = (
    "not found",
    "no connection",
    "access denied",
    "timeout",
    "not allowed",
    "out of order",
    "try again later",
)
_PLAIN_RESULTS = (
    "{w} {n}",
    "{n}",
    "{w}",
    "[Done|Ready|OK], {w}",
    "{n} [pages|points|files|results]",
    "[No|One] {w} found",
)
_WEB_SEARCH = "search_web"
_SEARCHABLE = frozenset(
    "get_weather find_train get_stock_price find_restaurant translate_text convert_currency multiply".split()
)
_ALIKE = ({"set_timer", "set_alarm"}, {"create_note", "send_message"}, {"create_note", "add_event"})


def generate_call(draw: Draw) -> Conversation:
    """One to three tools, of which the question needs one; at times another call was made and answered before."""
    return _call(draw, *_offer(draw))


def generate_renamed_call(draw: Draw) -> Conversation:
    """The same where no tool has the name that it is known by, so that the name must be copied."""
    specs = tool_specs.renamed_specs(draw, draw.choice((1, 2, 2, 3, 3)))
    return _call(draw, *_shuffled(draw, specs))


def _call(draw: Draw, spec: Spec, specs: list[Spec]) -> Conversation:
    before = _exchange(draw, draw.choice(specs)) if draw.chance(0.2) else ()
    question, arguments = _request(draw, spec)
    return Conversation(
        (*before, Turn("user", question), Turn("assistant", tool_call(spec.name, arguments))),
        tools=tuple(tool_specs.definition(draw, each) for each in specs),
        thought=f"I need {spec.name}.",
    )


def generate_no_call(draw: Draw) -> Conversation:
    """Tools that do not fit: the model answers known questions in words and declines others."""
    _, specs = _offer(draw)
    tools = tuple(tool_specs.definition(draw, each) for each in specs)
    roll = draw.random.random()
    if roll < 0.25:
        known = draw.choice((small_talk.generate, facts.generate, identity.generate, numbers.generate_sum))
        return replace(on_our_side(draw, known), tools=tools)
    # By description: a tool may be offered under another name.
    known_as = {each.description: each.name for each in HAND_WRITTEN}
    names = {known_as.get(each.description, each.name) for each in specs}
    absent = [each for each in HAND_WRITTEN if each.name not in names and not _overlaps(each, names)]
    if roll < 0.35 and _WEB_SEARCH not in names:
        question = unknown.beyond_tools(draw)
    else:
        question, _ = _request(draw, draw.choice(absent))
    turns = (Turn("user", question), Turn("assistant", unknown.NO_TOOL))
    return Conversation(turns, tools=tools, thought="No tool fits.")


def generate_result(draw: Draw) -> Conversation:
    """The turn after a call: states the result or the error in words."""
    spec, specs = _offer(draw)
    return Conversation(
        _exchange(draw, spec),
        tools=tuple(tool_specs.definition(draw, each) for each in specs),
        thought="I have the result.",
    )


def _exchange(draw: Draw, spec: Spec) -> tuple[Turn, ...]:
    """A question, its call, the tool's result, and the answer that tells it."""
    question, arguments = _request(draw, spec)
    # Clients send calls and results back in their own spacing.
    compact = draw.chance(0.2)
    call = tool_call(spec.name, arguments, compact=compact)
    content, reply = _result(draw, spec, arguments)
    return (
        Turn("user", question),
        Turn("assistant", call, learned=not compact),
        Turn("tool", content),
        Turn("assistant", reply),
    )


def _result(draw: Draw, spec: Spec, arguments: dict[str, Value]) -> tuple[str, str]:
    separators = (",", ":") if draw.chance(0.25) else (", ", ": ")
    roll = draw.random.random()
    if roll < 0.12:
        error = draw.choice(_ERRORS)
        return json.dumps({"error": error}, separators=separators), f"That did not work: {error}."
    if roll < 0.24:
        content = draw.phrase(draw.choice(_PLAIN_RESULTS), w=draw.invented(), n=draw.number(2, 9999))
        return content, f"The tool says: {content}"
    values: dict[str, Value] = {key: make(draw) for key, make in spec.result.items()}
    slots = {**values, **arguments}
    return json.dumps(values, ensure_ascii=False, separators=separators), spec.reply.format(**slots)


def _offer(draw: Draw) -> tuple[Spec, list[Spec]]:
    """The tool that will be asked for, and the one to three tools to offer in any order."""
    return _shuffled(draw, tool_specs.some_specs(draw, draw.choice((1, 2, 2, 3, 3))))


def _shuffled(draw: Draw, specs: list[Spec]) -> tuple[Spec, list[Spec]]:
    unique = list({each.name: each for each in specs}.values())
    return unique[0], draw.sample(unique, len(unique))


def _request(draw: Draw, spec: Spec) -> tuple[str, dict[str, Value]]:
    arguments = {name: part.make(draw) for name, part in spec.parameters.items()}
    question = draw.phrase(draw.choice(spec.asks), **arguments)
    if draw.chance(0.12):
        question = draw.choice(("Please: ", "Hi! ", "Hello. ", "OK, next: ")) + question
    return question, arguments


def _overlaps(spec: Spec, offered: set[str]) -> bool:
    """Whether an offered tool could serve the request for ``spec`` after all."""
    searchable = spec.name in _SEARCHABLE and _WEB_SEARCH in offered
    return searchable or any({spec.name, other} in _ALIKE for other in offered)
