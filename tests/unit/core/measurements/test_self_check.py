"""What is worse than with the last version, in words."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from jan_serve.core.measurements.self_check import SelfCheck, worse

GB = 10**9
OLD = SelfCheck(
    version="1.0.0",
    llama_cpp="0.3.1",
    at=100.0,
    answers={"a": "1", "b": "2"},
    prompt_per_s=1000.0,
    tokens_per_s=100.0,
    devices={"CPU": 16 * GB, "CUDA0": 8 * GB},
    free_bytes=8 * GB,
)


def changed(**fields: Any) -> SelfCheck:
    return msgspec.structs.replace(OLD, version="1.1.0", llama_cpp="0.3.2", at=200.0, **fields)


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (changed(), []),
        (
            changed(answers={"a": "1", "b": "3"}),
            ["answers differently than with version 1.0.0: b (llama.cpp"],
        ),
        (changed(answers={"b": "2", "c": "9"}), []),
        (changed(prompt_per_s=501.0, tokens_per_s=51.0), []),
        (
            changed(prompt_per_s=400.0),
            ["reads prompts slower than with version 1.0.0: 400 tokens/s, not 1000."],
        ),
        (changed(tokens_per_s=40.0), ["writes slower than with version 1.0.0: 40 tokens/s, not 100."]),
        (changed(devices={"CPU": 16 * GB}), ["The device CUDA0 is gone."]),
        (changed(devices={"CPU": 16 * GB, "CUDA0": 2 * GB}), ["CUDA0 has less memory"]),
        (changed(devices={**OLD.devices, "CUDA1": 1}), []),
        (changed(free_bytes=3 * GB), ["Less memory is free than with version 1.0.0: 3.0 GB, not 8.0 GB."]),
        (changed(free_bytes=3 * GB, tokens_per_s=1.0), ["writes slower", "Less memory"]),
    ],
)
def test_what_is_worse_is_named(now: SelfCheck, words: list[str]) -> None:
    found = worse(OLD, now)
    assert len(found) == len(words)
    assert all(word in text for word, text in zip(words, found, strict=True))
