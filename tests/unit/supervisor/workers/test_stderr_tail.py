"""What is kept of a worker's stderr, and what of it may be shown."""

from __future__ import annotations

import pytest

from jan_serve.supervisor.workers.stderr_tail import MAX_LINE_CHARS, MAX_LINES, StderrTail, sanitise

TEXT = "first line\nzweite Zeile é 模\r\n\nlast without end"


def test_lines_do_not_depend_on_where_the_bytes_are_cut() -> None:
    data = TEXT.encode()
    for cut in range(len(data) + 1):
        tail = StderrTail()
        seen = [*tail.feed(data[:cut]), *tail.feed(data[cut:]), *tail.close()]
        assert seen == ["first line", "zweite Zeile é 模", "last without end"]
        assert list(tail.lines) == seen


def test_only_the_last_lines_are_kept() -> None:
    tail = StderrTail()
    tail.feed("".join(f"line {number}\n" for number in range(1000)).encode())
    assert len(tail.lines) == MAX_LINES
    assert tail.lines[-1] == "line 999"


def test_a_line_without_end_does_not_grow() -> None:
    tail = StderrTail()
    for _ in range(1000):
        tail.feed(b"x" * 10_000)
    (line,) = tail.close()
    assert line == "x" * MAX_LINE_CHARS + "…"


@pytest.mark.parametrize(
    ("raw", "safe"),
    [
        ("plain", "plain"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("bell\x07 nul\x00", "bell\\x07 nul\\x00"),
        ("carriage\rreturn", "carriage\\x0dreturn"),
        ("tab\there", "tab    here"),
        ("right\u202eto left", "right\\x202eto left"),
    ],
)
def test_control_characters_are_escaped(raw: str, safe: str) -> None:
    assert sanitise(raw) == safe


def test_bytes_that_are_no_text_are_replaced() -> None:
    tail = StderrTail()
    assert tail.feed(b"bad \xff\xfe\n") == ["bad \ufffd\ufffd"]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], ""),
        (["one"], "one"),
        (["one", "two", "three", "four"], "two | three | four"),
        (
            ["/tmp/build/llama.cpp/ggml/src/ggml.c:123: GGML_ASSERT(x != NULL) failed"],
            "ggml.c:123: GGML_ASSERT(x != NULL) failed",
        ),
        (
            ["error loading '/home/me/my models/a.gguf' at 0x7f001234"],
            "error loading 'my models/a.gguf' at <address>",
        ),
        (["open C:\\Users\\me\\a.gguf failed"], "open a.gguf failed"),
        (
            [
                "Traceback (most recent call last):",
                '  File "/usr/lib/python3/site-packages/x.py", line 3, in f',
                "    call()",
                "    ~~~~^^",
                "ValueError: bad thing",
            ],
            "ValueError: bad thing",
        ),
        (
            ["llama_context: n_ctx_seq (512) < n_ctx_train (2048) -- the full capacity will not be utilized"],
            "",
        ),
        (["#0  0x00007f in abort () from /lib/libc.so", "aborted"], "aborted"),
    ],
)
def test_last_words_hold_no_paths_addresses_or_frames(lines: list[str], words: str) -> None:
    tail = StderrTail()
    tail.feed("".join(line + "\n" for line in lines).encode())
    assert tail.last_words() == words
