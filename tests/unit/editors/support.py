"""A server with three models, and the files that recipes write for it."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import yaml

from jan_serve.editors.recipe import EditorModel, Folders, ServerFacts
from jan_serve.editors.recipes import RECIPES

FOLDERS = Folders(home=Path("/h"), config=Path("/h/.config"), code=Path("/h/Code/User"), zed=Path("/h/zed"))
CHAT = EditorModel("org/chat:Q4", 8192, is_chat=True, is_embedding=False, sees=True)
MODELS = (
    EditorModel("small", None, is_chat=True, is_embedding=False),
    CHAT,
    EditorModel("embed", 512, is_chat=False, is_embedding=True),
)


def facts(*, needs_key: bool = False) -> ServerFacts:
    """A server with three models."""
    return ServerFacts("http://127.0.0.1:1337", needs_key, MODELS, CHAT)


def parsed(name: str, *, needs_key: bool = False) -> Any:
    """The settings file of a program that had none."""
    recipe = RECIPES[name](facts(needs_key=needs_key), FOLDERS)
    assert recipe.change is not None
    text = recipe.change.merge("")
    readers = {".json": json.loads, ".yaml": yaml.safe_load, ".yml": yaml.safe_load, ".toml": tomllib.loads}
    return readers[recipe.change.path.suffix](text)
