"""The names under which Claude's models are looked up."""

from __future__ import annotations

import pytest

from jan_serve.dialects.anthropic.claude_names import names_for


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("qwen3", ("qwen3",)),
        ("sonnet-finetune", ("sonnet-finetune",)),
        ("opus", ("opus", "claude")),
        ("claude", ("claude",)),
        ("claude-3-5-haiku-latest", ("claude-3-5-haiku-latest", "haiku", "claude")),
        ("Claude-Opus-4-8", ("Claude-Opus-4-8", "opus", "claude")),
        ("us.anthropic.claude-sonnet-4-v1:0", ("us.anthropic.claude-sonnet-4-v1:0", "sonnet", "claude")),
        ("claude-next", ("claude-next", "claude")),
    ],
)
def test_the_names_to_look_up(name: str, expected: tuple[str, ...]) -> None:
    assert names_for(name) == expected
