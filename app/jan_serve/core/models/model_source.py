"""A ModelSource is a model file that can be loaded, by its canonical name, which a request may give a default tag.

A name without a tag stands for `:latest`, as in registries of images. Some clients always send a tag.
"""

from __future__ import annotations

from typing import Final

import msgspec

MAX_ADAPTERS: Final = 32
"""Most adapters of a model, those of its variants included."""


class ModelSource(msgspec.Struct, frozen=True, kw_only=True):
    """A file, and what distinguishes its loads.

    name: canonical; clients see it. path: absolute. revision: changes with the file and with the load options; a loaded
    model whose source has another revision is reloaded. adapters: names of its LoRA adapters. projector: file through
    which it sees or hears.
    """

    name: str
    path: str
    revision: tuple[int, ...] = ()
    adapters: tuple[str, ...] = ()
    projector: str | None = None
