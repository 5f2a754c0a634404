"""Writes members in any order as parametric rules: the parameter has a bit for each member that is there already.
llguidance takes a rule that is empty under a condition for empty always, and completes a rule for every parameter that
it has at the same position. So each member is written with a successor and without one, and the text before a position
determines the bits. Where there are more members than bits, they come in blocks, one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from jan_serve.constraint.ast import NEVER, Unordered
from jan_serve.constraint.lark.notation import ALWAYS

_BITS: Final = 64
_NEVER: Final = "never"


def are_counted(members: Unordered) -> bool:
    """Whether the number of members matters beside those that must be there."""
    needed = sum(members.required)
    return members.low > max(needed, 1) or members.high is not None


class _Block(NamedTuple):
    """Members whose bits the parameter has at the same time, the required ones first. needed: how many these are."""

    items: tuple[int, ...]
    first: int
    needed: int

    def has_needed(self) -> str:
        return _ones(self.first, self.first + self.needed)

    def has_optional(self) -> str:
        return _ones(self.first + self.needed, self.first + len(self.items))


class Start(NamedTuple):
    """A member that may be the first. item: None for another one. after: the rule that may follow, "" for none, and its
    parameter. ends: whether nothing has to follow."""

    item: int | None
    after: str
    parameter: int
    ends: bool


class UnorderedWriter:
    """The rules of one `Unordered`, by names that begin with `stem`. items, other, separator: texts. Where members are
    not counted, any number of other ones is in each text. shift: the bits of the parameter that stay as they are."""

    def __init__(
        self, members: Unordered, items: Sequence[str], other: str, separator: str, *, stem: str, shift: int
    ) -> None:
        self._required = members.required
        self._items = items
        self._other = other if members.other != NEVER else ""
        self._separator = separator
        self.stem = stem
        self._counts = are_counted(members)
        needed = sum(members.required)
        self._low = max(members.low - needed, 0) if self._counts else 0
        self._high = None if members.high is None else members.high - needed
        width = max(self._low, self._high or 0, 1).bit_length() if self._counts else 0
        self._counter = f"[{shift}:{shift + width}]"
        self._kept = (1 << shift + width) - 1
        self._blocks = self._split(shift + width)
        self._nexts = {
            (number, counted): self._next(number, counted=counted)
            for number in range(len(self._blocks))
            for counted in ((False, True) if self._counts else (False,))
        }
        """What may follow, by the block and whether the member before still has to be counted."""

    def _split(self, first: int) -> list[_Block]:
        blocks: list[_Block] = []
        for at in range(0, len(self._required), _BITS - first):
            own = range(at, min(at + _BITS - first, len(self._required)))
            items = sorted(own, key=lambda item: not self._required[item])
            blocks.append(_Block(tuple(items), first, sum(self._required[item] for item in own)))
        return blocks

    def rules(self) -> Iterator[tuple[str, str]]:
        """Parametric rules. The first one is all members, where all bits but the `shift` first are zero."""
        if self._other and not self._counts:
            starts = [f"{self._name(0)}::_", f"{self._other} {self._after(0, counted=False)}::_"]
            if not any(self._required):
                starts.append(self._other)
            yield self.stem, " | ".join(starts)
        for number, block in enumerate(self._blocks):
            alternatives = [*self._listed(number, block), *self._others(number, block)]
            if number + 1 < len(self._blocks):  # whose bits are zero
                after = f"{self._name(number + 1)}::bit_and({hex(self._kept)})"
                alternatives.append(_if(after, block.has_needed()))
            yield self._name(number), " | ".join(alternatives)
        for (number, counted), body in self._nexts.items():
            if body:
                yield self._after(number, counted=counted), body

    def starts(self) -> Iterator[Start]:
        """The first members, where all bits but the `shift` first are zero."""
        for number, block in enumerate(self._blocks):
            alone = not self._needs_later(number)
            for position, item in enumerate(block.items):
                is_needed = position < block.needed
                counted = self._counts and not is_needed
                if not counted or self._high != 0:
                    ends = alone and block.needed == is_needed and self._low <= counted
                    after = self._following(number, counted=counted)
                    yield Start(item, after, 1 << block.first + position, ends)
            if number == 0 and self._other and self._high != 0:
                ends = not any(self._required) and self._low <= 1
                yield Start(None, self._following(0, counted=self._counts), 0, ends)
            if block.needed:
                return

    def _name(self, number: int) -> str:
        return f"{self.stem}_{number}" if number or (self._other and not self._counts) else self.stem

    def _after(self, number: int, *, counted: bool) -> str:
        return f"{self.stem}_{number}{'c' if counted else 'n'}"

    def _following(self, number: int, *, counted: bool) -> str:
        return self._after(number, counted=counted) if self._nexts[number, counted] else ""

    def _listed(self, number: int, block: _Block) -> Iterator[str]:
        for position, item in enumerate(block.items):
            bit, is_needed = block.first + position, position < block.needed
            counted = self._counts and not is_needed
            free = _all(f"bit_clear({bit})", self._below(0) if counted else "")
            missing = block.has_needed()
            if is_needed and block.needed == 1:
                missing = ""
            elif is_needed:
                end = block.first + block.needed
                missing = f"bit_count_ge([{block.first}:{end}], {block.needed - 1})"
            yield from self._alternatives(
                number, self._items[item], f"set_bit({bit})", free, missing, counted=counted
            )

    def _others(self, number: int, block: _Block) -> Iterator[str]:
        if self._other and self._counts:
            yield from self._alternatives(
                number, self._other, "_", self._below(0), block.has_needed(), counted=True
            )

    def _alternatives(
        self, number: int, text: str, argument: str, free: str, missing: str, *, counted: bool
    ) -> Iterator[str]:
        """A member with and without another one after it."""
        following = self._following(number, counted=counted)
        if following and free != _NEVER:
            yield _if(f"{text} {following}::{argument}", free)
        low = self._low - counted
        ends = _all(free, missing, f"ge({self._counter}, {low})" if low > 0 else "")
        if ends != _NEVER and not self._needs_later(number):
            yield _if(text, ends)

    def _next(self, number: int, *, counted: bool) -> str:
        """The separator and another member, while there is one; "" where there is none."""
        block, later = self._blocks[number], self._blocks[number + 1 :]
        room = self._below(counted)
        more = [_not(block.has_needed())]
        if self._needs_later(number):
            more.append("")
        if (self._other and self._counts) or any(len(own.items) > own.needed for own in later):
            more.append(room)
        more.append(_all(room, _not(block.has_optional())))
        condition = "" if "" in more else _nested("or", [own for own in more if own != _NEVER], _NEVER)
        if condition == _NEVER:
            return ""
        argument = f"incr({self._counter})" if counted else "_"
        text = f"{self._separator} {self._name(number)}::{argument}"
        return _if(text, condition) if condition else text + ALWAYS

    def _needs_later(self, number: int) -> bool:
        return any(later.needed for later in self._blocks[number + 1 :])

    def _below(self, uncounted: int) -> str:
        """Whether there is room for one more member that is counted, after `uncounted` ones."""
        if self._high is None:
            return ""
        return f"lt({self._counter}, {self._high - uncounted})" if self._high > uncounted else _NEVER


def _ones(first: int, end: int) -> str:
    """A condition: these bits are set. "" is true."""
    return f"is_ones([{first}:{end}])" if first < end else ""


def _all(*conditions: str) -> str:
    if _NEVER in conditions:
        return _NEVER
    return _nested("and", [condition for condition in conditions if condition], "")


def _nested(function: str, conditions: list[str], of_none: str) -> str:
    text = conditions.pop() if conditions else of_none
    while conditions:
        text = f"{function}({conditions.pop()}, {text})"
    return text


def _not(condition: str) -> str:
    return f"not({condition})" if condition else _NEVER


def _if(text: str, condition: str) -> str:
    return f"{text} %if {condition}" if condition else text
