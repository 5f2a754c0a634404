"""`python -m tests.fuzz.guided TARGET [libFuzzer's options and corpus]`: what reaches new code is changed further.

The bytes of libFuzzer are the draws of a target (Zest, Padhye et al. 2019), so that its inputs stay as well formed as
those of `tests.fuzz`. A file that was found runs again if its path takes the place of the corpus. Linux, Python < 3.14.
"""

# atheris is installed by make fuzz only.
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportAttributeAccessIssue=false

from __future__ import annotations

import asyncio
import random
import sys
from typing import Final

import atheris

with atheris.instrument_imports(include=["jan_serve", "jinja2"], enable_loader_override=False):
    from tests.fuzz.targets import GUIDED


class BytesRandom(random.Random):
    """Its bits are those of some bytes, then zeros."""

    def __init__(self, data: bytes) -> None:
        super().__init__(0)
        self._data = data
        self._at = 0

    def getrandbits(self, k: int, /) -> int:
        size = (k + 7) // 8
        piece = self._data[self._at : self._at + size]
        self._at += size
        return int.from_bytes(piece, "little") & ((1 << k) - 1)

    def random(self) -> float:
        return self.getrandbits(53) / (1 << 53)


_MOST_BYTES: Final = 512


def main() -> None:
    """Ends the process."""
    name, *options = sys.argv[1:]
    loop = asyncio.new_event_loop()
    target = GUIDED[name]()
    one = loop.run_until_complete(target.__aenter__())

    def test(data: bytes) -> None:
        loop.run_until_complete(one(BytesRandom(data)))

    atheris.Setup([sys.argv[0], f"-max_len={_MOST_BYTES}", "-len_control=0", *options], test)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
