"""The programs to import from, by their `--from` names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from jan_serve.store.imports.found import FoundModel
from jan_serve.store.imports.hf import find_hf_cache
from jan_serve.store.imports.jan import find_jan
from jan_serve.store.imports.lmstudio import find_lmstudio
from jan_serve.store.imports.ollama import find_ollama

FINDERS: Final[dict[str, Callable[[Path], Iterator[FoundModel]]]] = {
    "ollama": find_ollama,
    "lmstudio": find_lmstudio,
    "jan": find_jan,
    "hf": find_hf_cache,
}
TITLES: Final = {"ollama": "Ollama", "lmstudio": "LM Studio", "jan": "Jan", "hf": "Hugging Face cache"}


def find(program: str, folders: Iterable[Path]) -> list[FoundModel]:
    """The models of a program in these folders, each once. Skips missing folders. Blocks on the disk."""
    found: list[FoundModel] = []
    seen: set[Path] = set()
    for folder in folders:
        resolved = folder.resolve()
        if resolved not in seen and folder.is_dir():
            seen.add(resolved)
            found += FINDERS[program](folder)
    return found
