"""Wire types of the routes that hosting platforms call: /vertex. They never leave this folder."""

from __future__ import annotations

from typing import Annotated, Any

from typing_extensions import TypedDict

from jan_serve.dialects.shared.wire_types import AtMost, FirstError, WireModel
from jan_serve.dialects.tgi.generate.wire import Seed, Unsigned
from jan_serve.dialects.tgi.limits import MAX_INSTANCES


class VertexParameters(WireModel):
    """All that is read of an instance's parameters."""

    max_new_tokens: Unsigned | None = None
    seed: Seed | None = None


class VertexInstance(WireModel):
    inputs: str
    parameters: VertexParameters | None = None


class VertexRequest(WireModel):
    """Texts and chats; each is read as the first of both forms that it fits."""

    instances: Annotated[list[dict[str, Any]], FirstError(), AtMost(MAX_INSTANCES, "instances")]


class VertexReply(TypedDict):
    """The text for each instance, in order."""

    predictions: list[str]
