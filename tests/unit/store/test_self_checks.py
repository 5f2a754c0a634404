"""What versions recorded of a machine: compared, kept apart, and never lost to another version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from jan_serve.store.self_checks import SelfCheck, SelfChecks, worse

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
            ["answers differently than with version 1.0.0: b (llama-cpp-python"],
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


def test_each_version_keeps_its_last_run(tmp_path: Path) -> None:
    checks = SelfChecks(tmp_path)
    assert (checks.all(), checks.before("1.0.0")) == ((), None)
    checks.put(OLD)
    assert checks.before("1.0.0") == OLD  # its own, where there is no other
    later = changed()
    checks.put(later)
    checks.put(msgspec.structs.replace(later, at=300.0))
    assert [(check.version, check.at) for check in SelfChecks(tmp_path).all()] == [
        ("1.0.0", 100.0),
        ("1.1.0", 300.0),
    ]
    assert checks.before("1.1.0") == OLD
    assert checks.before("1.2.0") == msgspec.structs.replace(later, at=300.0)
    back = checks.before("1.0.0")
    assert back is not None and back.version == "1.1.0"  # after a downgrade


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"format": 99}', b'{"version": 1}', b"[" * 100_000])
def test_what_cannot_be_read_hides_only_itself_and_stays(tmp_path: Path, content: bytes) -> None:
    checks = SelfChecks(tmp_path)
    checks.put(OLD)
    other = tmp_path / "selfcheck" / "9.9.9.json"
    other.write_bytes(content)
    assert checks.all() == (OLD,)
    checks.put(changed())
    assert other.read_bytes() == content


def test_names_of_versions_are_no_paths(tmp_path: Path) -> None:
    checks = SelfChecks(tmp_path)
    checks.put(msgspec.structs.replace(OLD, version="../../1.0 (dev)"))
    assert [path.name for path in (tmp_path / "selfcheck").iterdir()] == [".._.._1.0__dev_.json"]
    assert len(checks.all()) == 1
