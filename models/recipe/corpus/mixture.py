"""The corpus as a whole: how often each skill comes, chats of several skills, system prompts, thinking, the split."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from models.recipe.corpus import (
    extraction,
    facts,
    identity,
    infill,
    memory,
    numbers,
    repeating,
    small_talk,
    thinking,
    tool_calls,
    unknown,
)
from models.recipe.corpus.conversation import Conversation, Example
from models.recipe.corpus.draw import Draw, on_our_side


@dataclass(frozen=True)
class Skill:
    """A generator, its share of the corpus in each of the two stages, and whether its examples may follow others
    in one chat."""

    generate: Callable[[Draw], Example]
    weight: float
    late_weight: float
    joins: bool = True
    # Names are split where they are drawn; questions from a finite set are split by the hash of their text.
    split_by_text: bool = False


SKILLS: Mapping[str, Skill] = {
    # The second stage has less of what is memorised by then, and more reading and copying.
    "identity": Skill(identity.generate, 6, 4, split_by_text=True),
    "small_talk": Skill(small_talk.generate, 6, 4, split_by_text=True),
    "facts": Skill(facts.generate, 9, 6, split_by_text=True),
    "sums": Skill(numbers.generate_sum, 10, 7, split_by_text=True),
    "lists": Skill(numbers.generate_list, 3, 2, split_by_text=True),
    "extraction": Skill(extraction.generate, 17, 32),
    "tool_call": Skill(tool_calls.generate_call, 17, 36),
    "renamed_tool_call": Skill(tool_calls.generate_renamed_call, 4, 16),
    "no_tool": Skill(tool_calls.generate_no_call, 10, 24),
    "tool_result": Skill(tool_calls.generate_result, 6, 6),
    "memory": Skill(memory.generate, 8, 7),
    "infill": Skill(infill.generate, 7, 5, joins=False, split_by_text=True),
    "thinking": Skill(thinking.generate, 6, 5, joins=False, split_by_text=True),
    "repeating": Skill(repeating.generate, 10, 10),
    "unknown": Skill(unknown.generate, 8, 6, split_by_text=True),
}
# Skills whose examples may come first in a chat of several: short, and the same with and without tools.
_OPENERS = ("identity", "small_talk", "facts", "sums", "lists")
SYSTEM_PROMPTS = (
    "You are a helpful assistant.",
    "You are a helpful, respectful and honest assistant.",
    "You are an assistant.",
    "You are a friendly assistant. Answer briefly.",
    "Answer briefly.",
    "Be concise.",
    "You are a helpful assistant. Keep your answers short.",
    "You are jan-tiny, a small local model.",
    "Answer in one sentence.",
    "Help the user.",
)
_JOINED_SHARE = 0.3
_SYSTEM_SHARE = 0.3
_THINKING_SHARE = 0.08


def single(skill: str, draw: Draw) -> Example:
    """One example of one skill on the side of the split that ``draw`` stands on."""
    entry = SKILLS[skill]
    return on_our_side(draw, entry.generate) if entry.split_by_text else entry.generate(draw)


def dressed(example: Conversation, draw: Draw, *, may_join: bool) -> Conversation:
    """The example in context: after other exchanges, under a system prompt, with thinking on."""
    if may_join and draw.chance(_JOINED_SHARE):
        for _ in range(draw.choice((1, 1, 2, 3))):
            before = single(draw.choice(_OPENERS), draw)
            assert isinstance(before, Conversation)
            example = replace(example, turns=before.turns + example.turns)
    if example.system is None and draw.chance(_SYSTEM_SHARE):
        example = replace(example, system=draw.choice(SYSTEM_PROMPTS))
    if example.thought is not None and draw.chance(_THINKING_SHARE):
        example = replace(example, thinking=True)
    return example


def _first_stage() -> bool:
    return False


def examples(
    seed: int | str,
    *,
    held_out: bool,
    draw_type: type[Draw] = Draw,
    late: Callable[[], bool] = _first_stage,
    pieces: Sequence[str] = (),
) -> Iterator[tuple[str, Example]]:
    """Skill and example without end, in proportion to the weights. ``late``: asked each time for the stage.

    ``pieces``: as for :class:`Draw`.
    """
    draw = draw_type(seed, held_out=held_out, pieces=pieces)
    names = list(SKILLS)
    early_weights = [SKILLS[name].weight for name in names]
    late_weights = [SKILLS[name].late_weight for name in names]
    while True:
        name = draw.random.choices(names, late_weights if late() else early_weights)[0]
        example = single(name, draw)
        if isinstance(example, Conversation):
            example = dressed(example, draw, may_join=SKILLS[name].joins)
        yield name, example
