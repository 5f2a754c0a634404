"""Reads give the same at every split of the text, and record what they read."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from jan_serve.chat.text_stream import Steps, TextStream, discard
from jan_serve.text.markers import MarkerSet

Read = Callable[[TextStream, list[str]], Steps[object]]


def run(read: Read, parts: list[str]) -> tuple[object, str, str]:
    """The result of one read over text in these parts; its output; the text that it leaves."""
    stream = TextStream()
    output: list[str] = []
    steps = read(stream, output)
    result: object = None
    waiting = True
    for part in [*parts, None]:
        if part is None:
            stream.close()
        else:
            stream.feed(part)
        if waiting:
            try:
                next(steps)
            except StopIteration as stop:
                result, waiting = stop.value, False
    assert not waiting, "it waits for text after the end"
    left = finish(stream.take(100))
    assert stream.at_end
    return result, "".join(output), left


def finish(steps: Steps[str]) -> str:
    try:
        next(steps)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("it waits for text after the end")


def until(*markers: str, cut_off: bool = False) -> Read:
    def read(stream: TextStream, output: list[str]) -> Steps[object]:
        def cut(text: str) -> None:
            output.append(f"({text})")

        wanted = cut if cut_off else None
        return (yield from stream.read_until(MarkerSet(markers), output.append, cut_off=wanted))

    return read


def accept(*literals: str) -> Read:
    return lambda stream, output: stream.accept(*literals)


def is_next(literal: str) -> Read:
    return lambda stream, output: stream.is_next(literal)


def peek(size: int) -> Read:
    return lambda stream, output: stream.peek(size)


def take(size: int) -> Read:
    return lambda stream, output: stream.take(size)


def digits(stream: TextStream, output: list[str]) -> Steps[object]:
    return stream.read_matching(re.compile("[0-9]*"), output.append)


def space(stream: TextStream, output: list[str]) -> Steps[object]:
    return stream.skip_space()


@pytest.mark.parametrize(
    ("read", "text", "result", "output", "left"),
    [
        (until("<a>", "<b>"), "xy<b>z", "<b>", "xy", "z"),
        (until("<a>", "<ab"), "x<ab>", "<ab", "x", ">"),
        (until("</call>", "<"), "a</c", "<", "a", "/c"),
        (until("</call>"), "a</cal", None, "a</cal", ""),
        (until("</call>", cut_off=True), "a</cal", None, "a(</cal)", ""),
        (until("</call>", cut_off=True), "ab", None, "ab()", ""),
        (until("</call>"), "", None, "", ""),
        (accept("true", "false"), "false,", "false", "", ","),
        (accept("nul", "null"), "null", "nul", "", "l"),
        (accept("true"), "trap", None, "", "trap"),
        (accept("true"), "tru", None, "", ""),
        (accept("true"), "", None, "", ""),
        (is_next("ab"), "abc", True, "", "abc"),
        (is_next("ab"), "acb", False, "", "acb"),
        (is_next("ab"), "a", False, "", ""),
        (digits, "12a3", None, "12", "a3"),
        (digits, "123", None, "123", ""),
        (digits, "a", None, "", "a"),
        (space, " \n\tx ", None, "", "x "),
        (peek(2), "abc", "ab", "", "abc"),
        (peek(5), "abc", "abc", "", "abc"),
        (take(2), "abc", "ab", "", "c"),
        (take(5), "abc", "abc", "", ""),
    ],
)
def test_a_read_is_the_same_at_every_split(
    read: Read, text: str, result: object, output: str, left: str
) -> None:
    assert run(read, [text]) == (result, output, left)
    for cut in range(len(text) + 1):
        assert run(read, [text[:cut], text[cut:]]) == (result, output, left), cut
    assert run(read, list(text)) == (result, output, left)


def test_text_before_a_marker_arrives_before_the_marker() -> None:
    stream = TextStream()
    output: list[str] = []
    steps = until("</a>")(stream, output)
    seen: list[str] = []
    for part in ("some text ", "and <", "/", "b", "</a>"):
        stream.feed(part)
        next(steps, None)
        seen.append("".join(output))
    assert seen == [
        "some text ",
        "some text and ",
        "some text and ",
        "some text and </b",
        "some text and </b",
    ]


def test_a_recording_holds_all_that_is_read() -> None:
    stream = TextStream()
    assert stream.stop_recording() == ""
    stream.feed("one two three")
    stream.close()
    finish(stream.take(4))
    stream.record("0 ")
    finish(stream.peek(3))
    finish(stream.take(4))
    with pytest.raises(StopIteration):
        next(stream.read_until(MarkerSet(["e"]), discard))
    assert stream.stop_recording() == "0 two thre"
    stream.record("lost")
    stream.record()
    finish(stream.take(9))
    assert stream.stop_recording() == "e"
    assert stream.stop_recording() == ""
