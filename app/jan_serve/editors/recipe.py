"""A recipe says how one program is connected; facts about the server, its models and folders go into it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlsplit

import msgspec

PROVIDER: Final = "jan-serve"
AGENT_HEADERS: Final = {"x-jan-serve-stop-loops": "end"}
"""Headers of agents, which run unwatched: an answer that repeats itself ends."""

KEY_VARIABLE: Final = "JAN_SERVE_API_KEY"
NO_KEY: Final = "none"
"""Placeholder for programs that require a key when the server does not."""


class EditorModel(msgspec.Struct, frozen=True):
    """n_ctx: context size in tokens, or None if unknown. is_exact: from the loaded model, not guessed from its file.
    sees: it takes pictures."""

    name: str
    n_ctx: int | None
    is_chat: bool
    is_embedding: bool
    is_exact: bool = True
    sees: bool = False

    @property
    def n_output(self) -> int | None:
        """Maximum tokens of an answer: a quarter of the context, at most 16384, to leave room for the prompt."""
        return None if self.n_ctx is None else min(self.n_ctx // 4, 16_384)


def editor_model(card: Mapping[str, Any], max_default_n_ctx: int) -> EditorModel:
    """Parse an entry of /v1/models. max_default_n_ctx: of a model that is not loaded."""
    meta = cast(dict[str, Any], card.get("meta") or {})
    architecture = cast(dict[str, Any], card.get("architecture") or {})
    pooling = meta.get("pooling")
    loaded, trained = meta.get("n_ctx"), card.get("context_length")
    guess = min(trained, max_default_n_ctx) if isinstance(trained, int) else None
    is_embedding = pooling not in (None, "none", "rank")
    return EditorModel(
        name=str(card["id"]),
        n_ctx=loaded if isinstance(loaded, int) else guess,
        is_chat=not is_embedding and pooling != "rank",
        is_embedding=is_embedding,
        is_exact=isinstance(loaded, int),
        sees="image" in architecture.get("input_modalities", ()),
    )


class ServerFacts(msgspec.Struct, frozen=True):
    """url: without path or trailing slash. model: the default model, which can chat."""

    url: str
    needs_key: bool
    models: tuple[EditorModel, ...]
    model: EditorModel

    @property
    def base_url(self) -> str:
        """The base URL of the OpenAI routes."""
        return f"{self.url}/v1"

    @property
    def key_steps(self) -> tuple[str, ...]:
        """What a user does for a program that reads the key from our variable."""
        return (f"Set {KEY_VARIABLE} to the server's key.",) if self.needs_key else ()

    @property
    def chat_models(self) -> tuple[EditorModel, ...]:
        """All chat models, the default one first."""
        others = tuple(model for model in self.models if model.is_chat and model != self.model)
        return (self.model, *others)

    @property
    def embedding_models(self) -> tuple[EditorModel, ...]:
        return tuple(model for model in self.models if model.is_embedding)


class Folders(msgspec.Struct, frozen=True):
    """Settings folders. config: ~/.config on Linux and macOS; code: the User folder of VS Code."""

    home: Path
    config: Path
    code: Path
    zed: Path


class Change(msgspec.Struct, frozen=True):
    """merge: maps the text of the settings file to its new text. Raises ValueError for an unreadable file."""

    path: Path
    merge: Callable[[str], str]


class Recipe(msgspec.Struct, frozen=True):
    """steps: instructions for the user. change: None if the program has no settings file to edit.
    aliases: names that the model should also have on the server, because clients of the same API send them.
    has_context: the settings or steps contain the size of the model's context."""

    title: str
    steps: tuple[str, ...]
    change: Change | None = None
    aliases: tuple[str, ...] = ()
    has_context: bool = True


Make = Callable[[ServerFacts, Folders], Recipe]


def told(title: str, *steps: str | tuple[str, ...], has_context: bool = False) -> Make:
    """A recipe that only tells what to do. A step has places for facts, as `{url}`; see `_places`.
    A tuple stands for what a server that asks for a key needs in addition: see `steps_without_key`."""

    def made(facts: ServerFacts, folders: Folders) -> Recipe:
        places = _places(facts)
        found: list[str] = []
        for step in steps:
            found += [step.format_map(places)] if isinstance(step, str) else steps_without_key(facts, *step)
        return Recipe(title, tuple(found), has_context=has_context)

    return made


def _places(facts: ServerFacts) -> dict[str, str]:
    """key: as a value, or what stands for one; secret: in words, where the program wants a text in any case."""
    return {
        "url": facts.url,
        "base_url": facts.base_url,
        "port": str(urlsplit(facts.url).port or 80),
        "model": facts.model.name,
        "context": "the n_ctx of the model" if facts.model.n_ctx is None else str(facts.model.n_ctx),
        "key": "YOUR-KEY" if facts.needs_key else NO_KEY,
        "secret": "the server's key" if facts.needs_key else "any text",
        "own_key": "the server's key" if facts.needs_key else "empty",
        "more_key": "" if facts.needs_key else " --api-key KEY",
    }


_OPEN_ROUTES: Final = ("/api/version", "/api/tags", "/api/show", "/api/chat")


def steps_without_key(facts: ServerFacts, network: str, *routes: str) -> tuple[str, ...]:
    """Steps for a program that sends no key. routes: that it needs beyond those that are open by default."""
    if not facts.needs_key:
        return ()
    more = "".join(f" --open-route {route}" for route in (*_OPEN_ROUTES, *routes)) if routes else ""
    return (
        f"It sends no key: start the server with --open-network {network}{more}, which lets it in without one.",
    )
