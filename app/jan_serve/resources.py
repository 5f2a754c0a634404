"""Finds the files that ship with jan-serve: beside the package in a checkout, inside it in a wheel. Read only."""

from __future__ import annotations

from pathlib import Path
from typing import Final

BUILTIN_MODEL: Final = "jan-tiny"

_PACKAGE: Final = Path(__file__).resolve().parent
_IN_WHEEL: Final = _PACKAGE / "_data"
_IN_CHECKOUT: Final = _PACKAGE.parent.parent


def resource(*parts: str) -> Path | None:
    """Path of a shipped file or folder, for example `resource("grammars", "json.gbnf")`. None if it is not there."""
    for root in (_IN_WHEEL, _IN_CHECKOUT):
        # A site-packages folder may have a `models` neighbour of its own: only a checkout has our pyproject.toml.
        if root == _IN_CHECKOUT and not (root / "pyproject.toml").is_file():
            continue
        path = root.joinpath(*parts)
        if path.exists():
            return path
    return None


def builtin_model() -> Path | None:
    """The GGUF file of the built-in model. None where this installation was built without it."""
    return resource("models", "builtin", f"{BUILTIN_MODEL}.gguf")


def catalogue_file() -> Path | None:
    """The catalogue of suggested models (TOML). None where this installation was built without it."""
    return resource("models", "catalogue.toml")


def shipped_grammars() -> dict[str, str]:
    """The GBNF texts that requests may use by name, by file name without `.gbnf`."""
    folder = resource("grammars")
    files = sorted(folder.glob("*.gbnf")) if folder is not None else []
    return {file.stem: file.read_text(encoding="utf-8") for file in files}


def page_folder() -> Path | None:
    """The page for browsers: the built one, else the plain one. None where this installation was built without both."""
    built = resource("web", "dist", "index.html")
    return built.parent if built is not None else resource("web", "plain")
