"""The public suites as lists of cases: MaskBench and the JSON Schema Test Suite, read from the reference folder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SHARED = Path(__file__).resolve().parents[3] / "shared"
VOCABULARY = SHARED / "data" / "vocab" / "ggml-vocab-llama-bpe.gguf"
DRAFTS = ("draft2020-12", "draft2019-09", "draft7", "draft6", "draft4")
SUITES = ("maskbench", *DRAFTS)


@dataclass(frozen=True, slots=True)
class Case:
    """One schema with instances: (instance, whether it is valid)."""

    name: str
    schema: Any
    instances: tuple[tuple[Any, bool], ...]


def load_suite(suite: str, every: int = 1) -> list[Case]:
    """Every n-th case of a suite, in a stable order. The reference folder must be there."""
    cases = _maskbench() if suite == "maskbench" else _schema_suite(suite)
    return list(cases)[::every]


def remotes() -> dict[str, Any]:
    """The documents that the JSON Schema Test Suite asks implementations to have, by URI."""
    folder = SHARED / "data" / "json-schema-test-suite" / "remotes"
    return {
        f"http://localhost:1234/{file.relative_to(folder).as_posix()}": json.loads(
            file.read_text(encoding="utf-8")
        )
        for file in sorted(folder.rglob("*.json"))
    }


def _maskbench() -> Iterator[Case]:
    for file in sorted((SHARED / "data" / "maskbench-dev").glob("*.json")):
        document = json.loads(file.read_text(encoding="utf-8"))
        yield Case(file.stem, document["schema"], tuple((t["data"], t["valid"]) for t in document["tests"]))


def _schema_suite(draft: str) -> Iterator[Case]:
    for file in sorted((SHARED / "data" / "json-schema-test-suite" / "tests" / draft).glob("*.json")):
        for number, group in enumerate(json.loads(file.read_text(encoding="utf-8"))):
            instances = tuple((t["data"], t["valid"]) for t in group["tests"])
            yield Case(f"{file.stem}-{number:02d}", group["schema"], instances)
