"""What the stderr of a process that crashed says of the reason: an assertion, an abort, an exception, memory (pure).

llama.cpp logs there as well, and its last lines before a crash are rarely about it. Without a reason there is none: the
exit status says more than a log line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from jan_serve.errors import public_text

_COUNT: Final = 3

_TRACEBACK: Final = re.compile(r'Traceback \(most recent call last\)|\s+File "')
_INDENTED: Final = re.compile(r"\s|\^+$|~*\^")
_REASON: Final = re.compile(
    r"""
      \.(?:c|cc|cpp|cu|cuh|h|hpp|m|mm):\d+:\s      # ggml's aborts: the place, and an assertion or a message
    | assert(?:ion)?\b.*\bfailed | \bGGML_(?:ASSERT|ABORT)\b
    | ^abort(?:ed|ing)?\b | \bterminat(?:e\scalled|ing)\b | \bwhat\(\):
    | \berrors?:\s | \berror\sloading\b | ^Fatal\b
    | ^(?:\w+(?:\.|::))*\w+(?:Error|Exception)(?::|$)
    | ^(?:[\w.]+:\s)?cannot\s | \bcannot\sallocate\b | \bno\s(?:such|module)\b
    | out\sof\smemory | outofmemory | insufficient\smemory | bad_alloc
    | failed\sto\s(?:re)?alloc | (?:unable\sto|could\snot)\s(?:re)?alloc | \balloc\w*\s.*\bfailed\b
    | ^(?:free|malloc|realloc|munmap_chunk)\(\):\s | ^(?:double\sfree|corrupted\s) | stack\ssmashing
    """,
    re.VERBOSE | re.IGNORECASE,
)


def crash_reason(lines: Sequence[str]) -> str:
    """The last lines that are a reason, joined with " | ", safe to show; "" if there are none."""
    found = dict.fromkeys(public_text(line) for line in _reasons(lines))
    return " | ".join(list(found)[-_COUNT:])


def _reasons(lines: Sequence[str]) -> Iterator[str]:
    in_traceback = False
    for line in lines:
        if _TRACEBACK.match(line):
            in_traceback = True
        elif in_traceback and not _INDENTED.match(line):
            # A traceback ends with its exception, whose class may have any name.
            in_traceback = False
            yield line
        elif _REASON.search(line) and not line.startswith("#"):
            yield line
