"""Wire types of /api/embed and of the older /api/embeddings."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field
from typing_extensions import TypedDict

from jan_serve.dialects.ollama.wire_common import ModelFields, OptionValues
from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.keep_alive import KeepAlive
from jan_serve.dialects.shared.wire_types import Between, Int, check_count
from jan_serve.errors import InvalidRequest


def _texts(value: Any) -> Any:
    texts: Any = [] if value in (None, "") else [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):  # pyright: ignore[reportUnknownVariableType]
        raise InvalidRequest("invalid input type: a text or a list of texts is expected", param="input")
    check_count(texts, limits.MAX_EMBEDDING_INPUTS, "input")  # pyright: ignore[reportUnknownArgumentType]
    return texts  # pyright: ignore[reportUnknownVariableType]


class OllamaEmbedRequest(ModelFields):
    """Texts to embed. Without any, the model is loaded."""

    input: Annotated[
        list[str],
        BeforeValidator(_texts, json_schema_input_type=str | list[str] | None),
        Field(description="A text or a list of texts."),
    ] = Field(default_factory=list[str])
    truncate: Annotated[
        bool | None,
        Field(description="Cut inputs that are longer than the context; otherwise they are refused."),
    ] = None
    dimensions: Annotated[
        Annotated[Int, Between(0)] | None,
        Field(description="Keep only the first dimensions, scaled to unit length. 0 keeps all."),
    ] = None
    keep_alive: KeepAlive = None
    options: OptionValues = None


class OllamaEmbeddingsRequest(ModelFields):
    """A text to embed. Without one, the model is loaded."""

    prompt: str | None = None
    keep_alive: KeepAlive = None
    options: OptionValues = None


class OllamaEmbedReply(TypedDict):
    """Vectors of unit length, in the order of the inputs. Durations in nanoseconds."""

    model: str
    embeddings: list[list[float]]
    total_duration: int
    load_duration: int
    prompt_eval_count: int


class OllamaEmbeddingsReply(BaseModel):
    """A vector of unit length."""

    embedding: list[float]
