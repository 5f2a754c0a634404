"""Where a prompt differs from the nearest earlier one of its client."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jan_serve.core.messages import ImagePart, Message, TextPart, Tool
from jan_serve.core.request import ChatPrompt, PartsPrompt, TextPrompt, TokenPrompt
from jan_serve.core.trace import Difference, RequestTrace
from jan_serve.generation.prompt_history import PlainPrompt, PromptHistory

SYSTEM = "You help.\nToday is 2026-11-27.\nThe folder has 12 files.\nBe brief."
TOOLS = tuple(Tool(name=name, parameters={"type": "object"}) for name in ("read", "write", "run"))
USER = Message(role="user", content="What is in the folder?")
ANSWER = Message(role="assistant", content="A file.")
SEEN = Message(role="user", content=(TextPart("What is it?"), ImagePart("data:image/png;base64,AA==")))


def chat(*messages: Message, system: str = SYSTEM, tools: tuple[Tool, ...] = TOOLS) -> ChatPrompt:
    return ChatPrompt(messages=(Message(role="system", content=system), *messages), tools=tools)


def compared(*prompts: ChatPrompt | PlainPrompt, salts: str = "") -> RequestTrace:
    """The trace of the last of several prompts. salts: of whom each is; by default all of one."""
    history = PromptHistory()
    trace = RequestTrace()
    for index, prompt in enumerate(prompts):
        trace = RequestTrace()
        history.compare(trace, "m", salts[index] if salts else "", prompt)
    return trace


CHANGES: list[tuple[str, ChatPrompt, ChatPrompt, Difference | None]] = [
    ("goes on", chat(USER), chat(USER, ANSWER, USER), None),
    ("is the same", chat(USER), chat(USER), None),
    (
        "a date",
        chat(USER),
        chat(USER, system=SYSTEM.replace("-27", "-28")),
        Difference("system", 2, sign="date"),
    ),
    (
        "a count",
        chat(USER),
        chat(USER, system=SYSTEM.replace("12", "13")),
        Difference("system", 3),
    ),
    ("a word", chat(USER), chat(USER, system=SYSTEM.replace("brief", "kind")), Difference("system", 4)),
    ("a line less", chat(USER), chat(USER, system=SYSTEM[:9]), Difference("system", 2)),
    (
        "a billing line",
        chat(USER, system=f"x-anthropic-billing-header: a1\n{SYSTEM}"),
        chat(USER, system=f"x-anthropic-billing-header: b2\n{SYSTEM}"),
        Difference("system", 1, sign="billing"),
    ),
    (
        "tokens left",
        chat(USER, Message(role="system", content="Tokens left: 120000"), ANSWER),
        chat(USER, Message(role="system", content="Tokens left: 90000"), ANSWER),
        Difference("history_edited", 2, sign="tokens_left", role="system"),
    ),
    ("order of tools", chat(USER), chat(USER, tools=TOOLS[::-1]), Difference("tools_order", 1)),
    ("a tool more", chat(USER, tools=TOOLS[:2]), chat(USER), Difference("tool_added", 3, count=1)),
    ("a tool less", chat(USER), chat(USER, tools=TOOLS[1:]), Difference("tool_removed", 1, count=1)),
    (
        "another tool",
        chat(USER),
        chat(USER, tools=(TOOLS[0], Tool(name="write", description="x"), TOOLS[2])),
        Difference("tool_changed", 2, count=1),
    ),
    (
        "an edited answer",
        chat(USER, ANSWER, USER),
        chat(USER, Message(role="assistant", content="Two files."), USER),
        Difference("history_edited", 2, role="assistant"),
    ),
    ("a message left out", chat(USER, ANSWER, SEEN), chat(USER, SEEN), Difference("history_cut", 2, count=1)),
    ("the end left out", chat(USER, ANSWER, SEEN), chat(USER, ANSWER), Difference("history_cut", 3, count=1)),
    (
        "a picture",
        chat(SEEN),
        chat(
            Message(role="user", content=(TextPart("What is it?"), ImagePart("data:image/png;base64,AQ==")))
        ),
        Difference("picture", 1, role="user"),
    ),
]


@pytest.mark.parametrize(
    ("earlier", "later", "expected"), [row[1:] for row in CHANGES], ids=[row[0] for row in CHANGES]
)
def test_the_first_difference_is_named(
    earlier: ChatPrompt, later: ChatPrompt, expected: Difference | None
) -> None:
    other = chat(Message(role="user", content="Other talk"), system="Another program")
    for before in ((other, earlier), (earlier, other)):
        trace = compared(*before, later)
        assert trace.nearest is not None
        assert trace.difference == expected


def test_a_prompt_alone_has_no_nearest() -> None:
    assert compared(chat(USER)).nearest is None
    assert compared(chat(USER), chat(USER), salts="ab").nearest is None


@pytest.mark.parametrize(
    ("later", "expected"),
    [
        ("one\ntwo\nthree", None),
        ("one\ntwo and more", None),
        ("one\n2\nthree", Difference("text", 2)),
        ("", Difference("text", 1)),
    ],
)
def test_texts_are_compared_by_lines(later: str, expected: Difference | None) -> None:
    if later == "one\n2\nthree":
        assert compared(TextPrompt("one\ntwo\nthree"), TextPrompt(later)).difference == expected
    else:
        assert compared(TextPrompt("one\ntwo"), TextPrompt(later)).difference == expected


_WORDS = st.sampled_from(["a", "b", "12:30", "tokens left: 4", "x\ny", ""])
_ROLES = st.sampled_from(["user", "assistant"])
_MESSAGES = st.lists(
    st.tuples(_ROLES, _WORDS).map(lambda drawn: Message(role=drawn[0], content=drawn[1])),
    min_size=1,
    max_size=6,
)


@given(system=_WORDS, messages=_MESSAGES, more=_MESSAGES, tools=st.integers(0, 3))
def test_what_goes_on_has_no_difference(
    system: str, messages: list[Message], more: list[Message], tools: int
) -> None:
    first = chat(*messages, system=system, tools=TOOLS[:tools])
    later = chat(*messages, *more, system=system, tools=TOOLS[:tools])
    assert compared(first, later).difference is None


@given(messages=_MESSAGES, at=st.integers(0, 5), data=st.data())
def test_a_changed_message_is_found(messages: list[Message], at: int, data: Any) -> None:
    """Whatever stands before and behind it."""
    at %= len(messages)
    edited = [*messages]
    edited[at] = Message(role="user", content="edited")
    found = compared(chat(*messages), chat(*edited)).difference
    assert found is not None
    assert found.place == at + 1


LONG = 50_000


@pytest.mark.parametrize(
    "prompt",
    [
        TextPrompt("ab\n" * LONG),
        chat(USER, system="ab\n" * LONG),
        chat(*(Message(role="user", content=str(number)) for number in range(LONG))),
        chat(*(Message(role="user", content="ab\n" * 50) for _ in range(LONG // 50))),
    ],
    ids=["text", "system", "messages", "lines of messages"],
)
def test_what_is_kept_and_made_of_a_prompt_of_many_parts_is_bounded(prompt: ChatPrompt | TextPrompt) -> None:
    """Compared twice: what is kept of the first, and what the search among the kept makes."""
    history = PromptHistory()
    tracemalloc.start()
    try:
        for _ in range(2):
            trace = RequestTrace()
            history.compare(trace, "m", "", prompt)
        trace = RequestTrace()
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 400_000
    assert peak < 2_000_000


def test_a_change_behind_the_compared_messages_is_none() -> None:
    messages = [Message(role="user", content=str(number)) for number in range(LONG)]
    assert compared(chat(*messages), chat(*messages[:-1], USER)).difference is None
    assert compared(chat(*messages), chat(*messages, USER)).difference is None
    found = compared(chat(*messages), chat(USER, *messages)).difference
    assert found is not None
    assert found.place == 1


def of_ids(text: str) -> PlainPrompt:
    return TokenPrompt((1, 2), text=text)


def with_an_image(text: str) -> PlainPrompt:
    return PartsPrompt((TextPart(text), ImagePart("data:image/png;base64,AA==")))


@pytest.mark.parametrize("form", [TextPrompt, of_ids, with_an_image])
def test_texts_are_compared_in_every_form_that_a_dialect_gives_them(
    form: Callable[[str], PlainPrompt],
) -> None:
    found = compared(form("one\nToday is 2026-11-27.\nthree"), form("one\nToday is 2026-11-28.\nthree"))
    assert found.difference == Difference("text", 2, sign="date")


LINES: dict[str, tuple[str, str]] = {
    "date": ("Today is 2026-11-27.", "Today is 2026-11-28."),
    "billing": ("x-anthropic-billing-header: cch=a1;", "x-anthropic-billing-header: cch=b2;"),
    "tokens_left": ("Tokens left: 9000", "Tokens left: 8000"),
    "": ("The folder has 12 files.", "The folder has 13 files."),
}
"""Lines of each sign, as they were and as they are."""


def in_user_text(text: str) -> ChatPrompt:
    return chat(USER, ANSWER, Message(role="user", content=text), ANSWER)


def in_user_parts(text: str) -> ChatPrompt:
    parts = [TextPart(line) for line in text.split("\n")]
    picture = ImagePart("data:image/png;base64,AA==")
    return chat(Message(role="user", content=(*parts[:1], picture, *parts[1:])), ANSWER)


def in_a_later_system_text(text: str) -> ChatPrompt:
    return chat(USER, Message(role="system", content=text), ANSWER)


PLACES: list[Callable[[str], ChatPrompt | PlainPrompt]] = [
    lambda text: chat(USER, system=text),
    lambda text: chat(Message(role="developer", content=text), USER),
    in_user_text,
    in_user_parts,
    in_a_later_system_text,
    TextPrompt,
    of_ids,
    with_an_image,
]


@pytest.mark.parametrize("place", PLACES)
@given(order=st.permutations(list(LINES)), sign=st.sampled_from(list(LINES)), blank=st.booleans())
def test_the_sign_is_that_of_the_changed_line(
    place: Callable[[str], ChatPrompt | PlainPrompt], order: list[str], sign: str, blank: bool
) -> None:
    """Among lines of all other kinds, which stay."""
    gap = "\n\n" if blank else "\n"
    earlier, later = (
        place(gap.join([*(LINES[name][now if name == sign else 0] for name in order), "Be brief."]))
        for now in (0, 1)
    )
    found = compared(earlier, later).difference
    assert found is not None
    assert found.sign == sign


@pytest.mark.parametrize("place", PLACES)
@given(order=st.permutations(list(LINES)), gone=st.integers(0, 2))
def test_a_line_that_only_moved_up_has_no_sign(
    place: Callable[[str], ChatPrompt | PlainPrompt], order: list[str], gone: int
) -> None:
    lines = [LINES[name][0] for name in order]
    found = compared(place("\n".join(lines)), place("\n".join(lines[:gone] + lines[gone + 1 :]))).difference
    assert found is not None
    assert found.sign == ""


def test_a_message_behind_the_compared_lines_is_judged_as_a_whole() -> None:
    long = Message(role="user", content="ab\n" * LONG)
    texts = (f"Be brief.\n{line}" for line in LINES["date"])
    earlier, later = (chat(long, Message(role="user", content=text)) for text in texts)
    assert compared(earlier, later).difference == Difference("history_edited", 2, sign="date", role="user")


def test_ids_without_a_text_are_like_no_other_prompt() -> None:
    assert compared(TextPrompt("one"), TokenPrompt((1, 2))).nearest is None
