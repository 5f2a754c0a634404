"""Token counts at the end of answers of several protocols, at every split."""

from __future__ import annotations

import pytest

from jan_serve.proxy.answer_relay import TAIL_BYTES, UsageTail

OPENAI = (
    b'{"usage":{"prompt_tokens":120,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":100}}}'
)
ANTHROPIC = b'data: {"usage": {"input_tokens": 20, "cache_read_input_tokens": 100, "output_tokens": 3}}\n\n'
OLLAMA = b'{"done":true,"prompt_eval_count":120}\n'
QUOTED = b'{"content":"\\"prompt_tokens\\": 5, \\"cached_tokens\\": 5"}'


@pytest.mark.parametrize(
    ("answer", "prompt", "cached"),
    [(OPENAI, 120, 100), (ANTHROPIC, 120, 100), (OLLAMA, 120, None), (QUOTED, None, None), (b"", None, None)],
)
@pytest.mark.parametrize("before", [b"", b"x" * (TAIL_BYTES + 5)])
def test_counts_are_found_wherever_the_answer_is_split(
    answer: bytes, before: bytes, prompt: int | None, cached: int | None
) -> None:
    for split in range(len(answer) + 1):
        tail = UsageTail()
        for part in (before, answer[:split], answer[split:]):
            tail.add(part)
        assert (tail.prompt_tokens, tail.cached_tokens) == (prompt, cached)


def test_the_last_bytes_are_kept() -> None:
    tail = UsageTail()
    for part in (b"x" * TAIL_BYTES, b"data: 1\n", b"\n"):
        tail.add(part)
    assert len(tail.last) == TAIL_BYTES
    assert tail.last.endswith(b"xdata: 1\n\n")
