"""Wire types of the routes that change models."""

from __future__ import annotations

from typing import NotRequired

from typing_extensions import TypedDict

from jan_serve.api.dialects.ollama.wire_common import ModelFields


class PullRequest(ModelFields):
    """A model to download: a name of the catalogue, `hf.co/org/repo` or `org/repo:QUANT`."""

    stream: bool | None = True
    insecure: bool | None = None


class Progress(TypedDict):
    """A line of a stream; the last one is `success`. total, completed: bytes of the file with this digest."""

    status: str
    digest: NotRequired[str]
    total: NotRequired[int]
    completed: NotRequired[int]


class DeleteRequest(ModelFields):
    """A model to delete."""
