"""Tables of cases that are data: the JSON file beside a test, which has the test's name."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any


def table(test_file: str, name: str) -> Any:
    """The cases of this name. They are one for all tests: nobody changes them."""
    return _tables(Path(test_file).with_suffix(".json"))[name]


@functools.cache
def _tables(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))
