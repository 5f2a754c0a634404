"""The names of the files of a split model, as llama.cpp's `gguf-split` numbers them."""

from __future__ import annotations

import re
from typing import Final

import msgspec

MAX_PARTS: Final = 1024
_PART_NAME: Final = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf\Z", re.IGNORECASE)


class PartName(msgspec.Struct, frozen=True):
    """`STEM-00002-of-00005.gguf`: the name of one file of a split model. number: from 1."""

    stem: str
    number: int
    count: int

    @classmethod
    def parse(cls, file_name: str) -> PartName | None:
        """None if the name has another form."""
        match = _PART_NAME.match(file_name)
        return cls(match["stem"], int(match["number"]), int(match["count"])) if match else None

    def all_files(self, stem: str | None = None) -> list[str]:
        """The file names of all parts in order, with another stem if given."""
        return [f"{stem or self.stem}-{n:05}-of-{self.count:05}.gguf" for n in range(1, self.count + 1)]
