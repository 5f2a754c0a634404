"""Names of models as Ollama's clients know them: always with a tag. Pure."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from jan_serve.core.models.default_tag import DEFAULT_TAG
from jan_serve.core.models.listed_model import ListedModel

_KEPT_MODELS: Final = 2048


def tagged(name: str) -> str:
    """`name` with `:latest` if it has no tag."""
    return name if ":" in name.rpartition("/")[2] else name + DEFAULT_TAG


@lru_cache(_KEPT_MODELS)
def shown_names(model: ListedModel) -> tuple[str, ...]:
    """The names of a model in lists, the main one first: its own, its aliases, and its adapters as tags.

    A model that was imported from Ollama, or made of an upload, has the name that it got there alone.
    """
    own = () if model.source in ("ollama", "created") and model.aliases else (model.name,)
    adapters = (f"{model.name}:{adapter}" for adapter in model.adapters)
    return tuple(dict.fromkeys(tagged(name) for name in (*own, *model.aliases, *adapters)))
