"""Wire types of the routes that show models."""

from __future__ import annotations

from typing import Any, NotRequired

from typing_extensions import TypedDict

from jan_serve.dialects.ollama.wire_common import ModelFields, OptionValues


class OllamaDetails(TypedDict):
    """parameter_size: as `8.2B`. quantization_level: as `Q4_K_M`. context_length: what the server gives."""

    parent_model: str
    format: str
    family: str
    families: list[str]
    parameter_size: str
    quantization_level: str
    context_length: NotRequired[int]
    embedding_length: NotRequired[int]


class ListedRow(TypedDict):
    """size: bytes of all files. digest: 64 hexadecimal digits that change with the model.

    capabilities: as in OllamaShowReply; missing until the server has read the header of a new file.
    """

    name: str
    model: str
    modified_at: str
    size: int
    digest: str
    details: OllamaDetails
    capabilities: NotRequired[list[str]]


class ModelRows(TypedDict):
    models: list[ListedRow]


class LoadedRow(TypedDict):
    """size, size_vram: bytes of memory, and of it on an accelerator. expires_at: when it is unloaded if idle."""

    name: str
    model: str
    size: int
    digest: str
    details: OllamaDetails
    expires_at: str
    size_vram: int
    context_length: int


class LoadedRows(TypedDict):
    models: list[LoadedRow]


class OllamaShowRequest(ModelFields):
    """A model to show. verbose: with long arrays of its header, and its tensors."""

    verbose: bool | None = None
    system: str | None = None
    template: str | None = None
    options: OptionValues = None


class OllamaTensor(TypedDict):
    name: str
    type: str
    shape: list[int]


class ShownMessage(TypedDict):
    role: str
    content: str


class OllamaShowReply(TypedDict):
    """model_info: the file's header; its context_length is the one that the server gives.

    capabilities: of completion, tools, thinking, vision, audio, insert, embedding.
    """

    modelfile: str
    parameters: NotRequired[str]
    template: NotRequired[str]
    system: NotRequired[str]
    license: NotRequired[str]
    messages: NotRequired[list[ShownMessage]]
    details: OllamaDetails
    model_info: dict[str, Any]
    tensors: NotRequired[list[OllamaTensor]]
    capabilities: list[str]
    modified_at: str


class OllamaVersion(TypedDict):
    version: str


class OllamaCloud(TypedDict):
    disabled: bool
    source: str


class OllamaStatus(TypedDict):
    """cloud: there is none."""

    cloud: OllamaCloud


class Recommendations(TypedDict):
    """Always empty: `jan-serve pull --list` suggests models."""

    recommendations: list[dict[str, Any]]
