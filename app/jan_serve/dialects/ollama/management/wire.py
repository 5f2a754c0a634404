"""Wire types of the routes that change models."""

from __future__ import annotations

from typing import Annotated, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from jan_serve.dialects.ollama.wire_common import ModelFields, OptionValues
from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.wire_types import AtMost, FirstError, Strings, WireModel


class OllamaPullRequest(ModelFields):
    """A model to download: a name of the catalogue, `hf.co/org/repo` or `org/repo:QUANT`."""

    stream: bool | None = True
    insecure: bool | None = None


class OllamaProgress(TypedDict):
    """A line of a stream; the last one is `success`. total, completed: bytes of the file with this digest."""

    status: str
    digest: NotRequired[str]
    total: NotRequired[int]
    completed: NotRequired[int]


class OllamaDeleteRequest(ModelFields):
    """A model to delete."""


class OllamaCopyRequest(WireModel):
    """A second name for a model."""

    source: str
    destination: str


class OllamaCreateMessage(WireModel):
    role: str
    content: str = ""


class OllamaCreateRequest(ModelFields):
    """A named variant of a model (`from`), or a model of an uploaded GGUF file (`files`: digests by file name)."""

    from_: Annotated[str | None, Field(alias="from", description="The model of which it is a variant.")] = (
        None
    )
    files: Annotated[dict[str, str] | None, AtMost(limits.MAX_FILES, "files")] = None
    adapters: Annotated[dict[str, str] | None, AtMost(limits.MAX_FILES, "adapters")] = None
    template: Annotated[str | None, Field(description="Chat template, in Jinja.")] = None
    system: Annotated[str | None, Field(description="Of chats without a system message.")] = None
    parameters: OptionValues = None
    messages: (
        Annotated[list[OllamaCreateMessage], FirstError(), AtMost(limits.MAX_MESSAGES, "messages")] | None
    ) = None
    license: str | Strings | None = None
    quantize: str | None = None
    modelfile: str | None = None
    stream: bool | None = True
