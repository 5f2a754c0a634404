"""Reads headers of model files, at the lowest priority. Started as `jan-serve headers`; not a user command."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from jan_serve.chat.detect import knows_thoughts
from jan_serve.core.models import HeaderFacts
from jan_serve.helpers.child import serve
from jan_serve.helpers.kinds import HEADERS, ReadHeader
from jan_serve.store.gguf.model_file import read_model_file

_LOWEST: Final = 19


def main() -> int:
    """Serve requests until the pipe closes."""
    if sys.platform != "win32":
        os.nice(_LOWEST)
    return serve(HEADERS, facts)


def facts(request: ReadHeader) -> HeaderFacts:
    """What lists say of the model. Raises InvalidModel."""
    return read_model_file(Path(request.path)).facts(knows_thoughts)
