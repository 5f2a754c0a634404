"""Where keys of a TOML text stand."""

from __future__ import annotations

import tomllib

import pytest

from jan_serve.config.toml_lines import KeyPath, TomlLines

TEXT = '''\
# a comment = 1
port = 1
"quoted key" = 2
text = """
inner = 3
[not.a.table]
"""
list = [
    1,  # one
    2,
]
dotted.key.here = true

[models."a/b"]
n_ctx = 5
inline = { x = 1, "y" = { z = 2 } }

[models."a/b".sampling]
top_k = 1

[[models."a/b".lora]]
name = "one"

[[models."a/b".lora]]
name = "two"
[models."a/b".lora.more]
deep = 1

[models]
last.n_ctx = 6
'''

LINES: list[tuple[KeyPath, int]] = [
    (("port",), 2),
    (("quoted key",), 3),
    (("text",), 4),
    (("list",), 8),
    (("list", 1), 8),
    (("dotted",), 12),
    (("dotted", "key", "here"), 12),
    (("models",), 14),
    (("models", "a/b"), 14),
    (("models", "a/b", "n_ctx"), 15),
    (("models", "a/b", "n_ctx", 3, "deeper"), 15),
    (("models", "a/b", "inline", "y", "z"), 16),
    (("models", "a/b", "sampling"), 18),
    (("models", "a/b", "sampling", "top_k"), 19),
    (("models", "a/b", "absent"), 14),
    (("models", "a/b", "lora"), 21),
    (("models", "a/b", "lora", 0, "name"), 22),
    (("models", "a/b", "lora", 1), 24),
    (("models", "a/b", "lora", 1, "name"), 25),
    (("models", "a/b", "lora", 1, "more", "deep"), 27),
    (("models", "last", "n_ctx"), 30),
    (("inner",), 1),
    (("not",), 1),
    ((), 1),
]


@pytest.mark.parametrize(("path", "line"), LINES)
def test_lines(path: KeyPath, line: int) -> None:
    tomllib.loads(TEXT)
    assert TomlLines(TEXT).line_of(path) == line


def test_no_text() -> None:
    assert TomlLines("").line_of(("a",)) == 1
