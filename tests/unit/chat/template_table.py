"""Writes docs/templates.md: what each published chat template cannot show. Run as a module by `make docs`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from jan_serve.chat.detect import detect_format, knows_tools, writes_calls
from jan_serve.chat.template_traits import traits_of
from tests.unit.chat.chat_sessions import STEPS, Fate, play
from tests.unit.chat.formats.real_templates import RealTemplate, templates

PAGE: Final = Path(__file__).resolve().parents[3] / "docs" / "templates.md"
_TURNS: Final = sum(not isinstance(step, str) for step in STEPS)

_INTRODUCTION: Final = f"""\
<!-- Written by tests/unit/chat/template_table.py from the templates. Change it there. -->

# Chat templates

The published chat templates on which the server is tested. No order of roles is refused, and nothing of a message is
left out but what the last column names: what a template does not take, the server shows in another way.

- **shown otherwise**: what the template refuses, leaves out or puts elsewhere, and what becomes of it.
- **kept**: of the {_TURNS} turns of a session with calls, thoughts and new questions, those whose prompt and answer the
  next prompt begins with, to the letter. Only the rest is computed again.
- **by the template**: why the next prompt differs after the other turns. A thought that is left out after the next
  question costs the answers since the question before: the server keeps a checkpoint there.

| template | format | shown otherwise | kept | by the template |
|---|---|---|---|---|
"""

OWN: Final = {
    "HuggingFaceTB-Idefics3": "a space before each answer",
    "LLaVA-NeXT": "a space before each answer",
    "Mistral-Small-3.1-tools": "ids of calls come last; tools are listed before the last question",
    "Mistral-Small-3.2-24B-Instruct-2506": "tools are listed before the last question",
    "mistralai-Mistral-Nemo-Instruct-2407": "ids of calls come last; tools are listed before the last question",
    "unsloth-Apriel-1.5": "ids of calls come last",
}
"""Reasons that a session does not tell by itself: a reader cannot know the id when it announces the call."""


def page() -> str:
    """The page as it must be."""
    rows = (
        " | ".join(_row(template)) for template in sorted(templates(), key=lambda each: each.name.lower())
    )
    return _INTRODUCTION + "".join(f"| {row} |\n" for row in rows)


def _row(template: RealTemplate) -> Iterator[str]:
    fates = Counter(turn.fate for turn in play(template.source))
    reasons = [fate.value for fate in (Fate.THOUGHT, Fate.HEADER) if fates[fate]]
    reasons += [OWN[template.name]] if fates[Fate.CHANGED] else []
    yield f"`{template.name}`"
    yield detect_format(template.source).name
    yield "; ".join(_shown_otherwise(template.source)) or "none"
    yield f"{fates[Fate.KEPT]}"
    yield "; ".join(reasons) or "none"


def _shown_otherwise(source: str) -> Iterator[str]:
    traits, chat_format = traits_of(source), detect_format(source)
    with_tools = knows_tools(source) and traits.tools
    with_calls = with_tools and writes_calls(source) and traits.calls
    if not with_tools:
        yield "tools, as text in the system message"
    if not with_calls and not (writes_calls(source) and traits.calls):
        yield "calls and results, as text"
    if with_calls and not traits.calls_alone:
        yield "calls without a list of tools, as text"
    if with_calls and not traits.parallel_calls:
        yield "several calls, in turns of their own"
    if with_calls and traits.call_opening is not None:
        where = "in a turn of its own" if chat_format.calls.at_start else "before them"
        yield f"text beside calls, {where}"
    if with_calls and not traits.orphan_results:
        yield "results without a call, as the user's"
    if with_calls and not traits.calls_last:
        yield "calls at the end, before an empty question"
    if not traits.system_role:
        yield "system messages, in the user's turn"
    elif not traits.late_system:
        yield "later system messages, in the user's turn"
    if not traits.repeated_turns:
        yield "turns of one role in a row, as one"
    if not traits.any_start:
        yield "a first answer or call, after an empty question"
    if not traits.empty_turns:
        yield "empty answers, left out"
    if traits.short_ids:
        yield "ids of calls, as nine characters"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
