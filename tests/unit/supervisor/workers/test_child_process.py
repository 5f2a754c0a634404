"""What is kept of a worker's stderr, and what of it may be shown."""

from __future__ import annotations

from typing import Any

import pytest

from jan_serve.supervisor.workers.child_process import MAX_LINE_CHARS, MAX_LINES, StderrTail, sanitise
from jan_serve.supervisor.workers.crash_reason import crash_reason
from tests.support.tables import table

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


def test_the_last_words_are_the_reason_in_the_lines() -> None:
    tail = StderrTail()
    tail.feed(b"sched_reserve: graph nodes = 966\nMemoryErr")
    assert tail.last_words() == ""
    tail.feed(b"or\n")
    assert tail.last_words() == "MemoryError"


LOG = """\
llama_context: n_ctx_seq (512) < n_ctx_train (2048) -- the full capacity of the model will not be utilized
load: special_eos_id is not in special_eog_ids - the tokenizer config may be incorrect
load: control-looking token:      2 '</s>' was not control-type; its type will be overridden
init: embeddings required but some input tokens were not marked as outputs -> overriding
llama_kv_cache: the V embeddings have different sizes across layers and FA is not enabled - padding V cache to 1024
sched_reserve: Flash Attention was auto, set to enabled
sched_reserve: reserving ...
sched_reserve: resolving fused Gated Delta Net support:
sched_reserve: layer 0 is assigned to device CPU but the fused Gated Delta Net tensor is assigned to device CUDA0
sched_reserve: graph splits = 2
~llama_context:        CPU compute buffer size is   5.0000 MiB, matches expectation of   5.0000 MiB
load_tensors: tensor 'token_embd.weight' (q4_K) cannot be used with preferred buffer type CUDA_Host
set_adapters_lora: adapters = 0x7ffd00
the 20 layers that the settings put on devices may not fit them
not enough memory: trying a context of 1024 tokens
one
"""
"""Lines of llama.cpp and of the worker before crashes: none is a reason."""

TAILS: Any = table(__file__, "tails")


@pytest.mark.parametrize(("tail", "reason"), TAILS)
def test_the_reason_is_shown_without_log_lines_paths_and_addresses(tail: str, reason: str) -> None:
    for lines in (tail, LOG + tail, tail + "\n" + LOG, LOG + tail + "\n" + LOG):
        assert crash_reason(lines.splitlines()) == reason


def test_the_last_reasons_count() -> None:
    assert crash_reason([f"error: {number}" for number in range(9)]) == "error: 6 | error: 7 | error: 8"
    assert crash_reason(["error: same"] * 9) == "error: same"
