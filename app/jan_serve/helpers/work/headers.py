"""Reads headers of model files."""

from __future__ import annotations

from pathlib import Path

from jan_serve.chat.detect import knows_thoughts
from jan_serve.core.models import HeaderFacts
from jan_serve.helpers.kinds import ReadHeader
from jan_serve.store.gguf.model_file import read_model_file


def facts(request: ReadHeader) -> HeaderFacts:
    """What lists say of the model. Raises InvalidModel."""
    return read_model_file(Path(request.path)).facts(knows_thoughts)
