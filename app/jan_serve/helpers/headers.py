"""Headers of model files that are read in a helper process, so that requests never wait for the front's interpreter."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from jan_serve.core.models.listed_model import HeaderFacts
from jan_serve.errors import InvalidModel
from jan_serve.helpers.kind import HelperKind


class ReadHeader(msgspec.Struct, frozen=True, kw_only=True):
    """Read the header of the model whose first file is at `path`."""

    path: str


def _too_much(request: ReadHeader) -> InvalidModel:
    return InvalidModel(f"{Path(request.path).name}: its header takes too much time or memory to read")


HEADERS: Final[HelperKind[ReadHeader, HeaderFacts]] = HelperKind(
    command="headers",
    name="reader of headers",
    request=ReadHeader,
    result=HeaderFacts,
    too_much=_too_much,
    # A model in 100 parts with a vocabulary of 262,144 tokens takes some seconds on a slow machine.
    cpu_limit_s=30.0,
    # A header has up to 512 MiB, of which one string may be 64 MiB, and each request has half of this.
    memory_limit_bytes=2 << 30,
    # The process has the lowest priority: other work may take the whole machine for minutes.
    wall_limit_s=600.0,
    processes=1,
)
