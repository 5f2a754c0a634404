"""Files that ship with jan-serve: beside the package in a checkout, inside it in a wheel."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Final, Literal, NamedTuple

BUILTIN_MODEL: Final = "jan-tiny"

_PACKAGE: Final = Path(__file__).resolve().parent
_IN_WHEEL: Final = _PACKAGE / "_data"
_IN_CHECKOUT: Final = _PACKAGE.parent.parent


def resource(*parts: str) -> Path | None:
    """Path of a shipped file or folder, e.g. `resource("grammars", "json.gbnf")`; None if missing."""
    for root in (_IN_WHEEL, _IN_CHECKOUT):
        # site-packages may hold an unrelated `models` folder: only a checkout has our pyproject.toml.
        if root == _IN_CHECKOUT and not (root / "pyproject.toml").is_file():
            continue
        path = root.joinpath(*parts)
        if path.exists():
            return path
    return None


def builtin_model() -> Path | None:
    """The GGUF file of the built-in model; None in an installation built without it."""
    return resource("models", "builtin", f"{BUILTIN_MODEL}.gguf")


def catalogue_file() -> Path | None:
    """The catalogue of suggested models (TOML); None in an installation built without it."""
    return resource("models", "catalogue.toml")


def shipped_grammars() -> dict[str, str]:
    """GBNF texts that requests may use, by file name without `.gbnf`."""
    folder = resource("grammars")
    files = sorted(folder.glob("*.gbnf")) if folder is not None else []
    return {file.stem: file.read_text(encoding="utf-8") for file in files}


def page_folder() -> Path | None:
    """The built web page, else the plain one; None in an installation built without both."""
    built = resource("web", "dist", "index.html")
    return built.parent if built is not None else resource("web", "plain")


def bundled_packages() -> Path | None:
    """Folder of the Python packages that a bundled wheel holds, llama.cpp's bindings; None in other installations."""
    folder = _PACKAGE / "_bundled"
    return folder if folder.is_dir() else None


class CodeExplanation(NamedTuple):
    """meaning: of a cause with names in braces, for values of a request. advice: what can be done; may be empty."""

    meaning: str
    advice: str = ""

    def without_values(self) -> CodeExplanation:
        """With the names in capitals, for readers that have no request at hand."""

        def shown(text: str) -> str:
            text = text.replace("{read}", "tokens were read")
            return re.sub(r"\{(\w+)[^}]*\}", lambda name: name[1].upper(), text)

        return CodeExplanation(shown(self.meaning), shown(self.advice))


@cache
def explanations() -> dict[Literal["errors", "causes"], dict[str, CodeExplanation]]:
    """What each code of an error, and each cause of `jan-serve why`, means."""
    tables = tomllib.loads((_PACKAGE / "explanations.toml").read_text(encoding="utf-8"))
    return {
        kind: {code: CodeExplanation(**words) for code, words in tables[kind].items()}
        for kind in ("errors", "causes")
    }
