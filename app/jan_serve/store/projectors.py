"""Which projector belongs to which model, by folder and name; `resolve` then compares their widths. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import Final

_SUFFIX: Final = ".gguf"
_QUANTISATION: Final = re.compile(r"[-_.](?:bf16|f16|f32|fp16|(?:ud-)?i?q\d\w*|mxfp4\w*)\Z", re.IGNORECASE)
_PART: Final = re.compile(r"-\d{5}-of-\d{5}\Z")
_MARK: Final = re.compile(r"[-_.]?mmproj[-_.]?", re.IGNORECASE)
_UNNAMED: Final = frozenset({"", "model", "f16", "f32", "bf16", "q8_0"})
_PREFERRED: Final = ("f16", "q8_0", "bf16", "f32")


def is_projector_name(file: str) -> bool:
    return file.lower().endswith(_SUFFIX) and "mmproj" in file.lower()


def projectors_for(model: str, files: Sequence[str]) -> tuple[str, ...]:
    """The projectors of `projectors_among` for one model."""
    return projectors_among(files)(model)


def projectors_among(
    files: Sequence[str], unmarked: Collection[str] = ()
) -> Callable[[str], tuple[str, ...]]:
    """For a model of a folder with these files, the projectors that may be its own, the likeliest first.

    A projector names its model, or the models of the folder are all of one name. unmarked: projectors by their headers
    alone.
    """
    named = {file: _stem(file) for file in files if is_projector_name(file) or file in unmarked}
    if not named:
        return lambda _: ()
    models = {_stem(file) for file in files if file.lower().endswith(_SUFFIX) and file not in named}

    def of(model: str) -> tuple[str, ...]:
        wanted = _stem(model)
        ranked: list[tuple[int, int, str]] = []
        for file, name in named.items():
            if name in _UNNAMED:
                closeness = 2 if len(models) == 1 else None
            else:
                closeness = 0 if name == wanted else 1 if _extends(name, wanted) else None
            if closeness is not None:
                ranked.append((closeness, _preference(file), file))
        return tuple(file for _, _, file in sorted(ranked))

    return of


def _stem(file: str) -> str:
    """The name without suffix, part, quantisation and the mark of projectors."""
    stem = _MARK.sub("-", _PART.sub("", file[: -len(_SUFFIX)])).strip("-_.")
    return _QUANTISATION.sub("", stem).casefold()


def _extends(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    return long.startswith(f"{short}-")


def _preference(file: str) -> int:
    lower = file.lower()
    # `f16` is part of `bf16`.
    return next(
        (rank for rank, kind in enumerate(_PREFERRED) if re.search(rf"(?<![a-z]){kind}", lower)),
        len(_PREFERRED),
    )
