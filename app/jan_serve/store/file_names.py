"""What the names of GGUF files say: projectors (mmproj) and the models that these are for."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import Final

from jan_serve.core.split_names import MAX_PARTS, PartName


def files_from(first: str) -> list[str]:
    """The file names of the model whose first file this is; none if it is a later part, or one of too many."""
    part = PartName.parse(first)
    if part is None:
        return [first]
    return part.all_files() if part.number == 1 and 1 <= part.count <= MAX_PARTS else []


_SUFFIX: Final = ".gguf"
_QUANTISATION: Final = re.compile(r"[-_.](?:bf16|f16|f32|fp16|(?:ud-)?i?q\d\w*|mxfp4\w*)\Z", re.IGNORECASE)
_PART_END: Final = re.compile(r"-\d{5}-of-\d{5}\Z")
_MARK: Final = re.compile(r"[-_.]?mmproj[-_.]?", re.IGNORECASE)
_UNNAMED: Final = frozenset({"", "model", "f16", "f32", "bf16", "q8_0"})
_PREFERRED: Final = ("f16", "q8_0", "bf16", "f32")


def is_projector_name(file: str) -> bool:
    return file.lower().endswith(_SUFFIX) and "mmproj" in file.lower()


def is_model_name(file: str) -> bool:
    """Whether a GGUF file is neither a projector nor an importance matrix, by its name."""
    return file.lower().endswith(_SUFFIX) and not is_projector_name(file) and "imatrix" not in file.lower()


def projectors_among(
    files: Sequence[str], unmarked: Collection[str] = ()
) -> Callable[[str], tuple[str, ...]]:
    """A function that gives the projectors which may be a model's own, the likeliest first. A projector names its
    model, or the models of the folder are all of one name. unmarked: projectors by their headers alone."""
    named = {file: _own_stem(file) for file in files if is_projector_name(file) or file in unmarked}
    if not named:
        return lambda _: ()
    models = {_own_stem(file) for file in files if file.lower().endswith(_SUFFIX) and file not in named}

    def of(model: str) -> tuple[str, ...]:
        wanted = _own_stem(model)
        ranked: list[tuple[int, int, str]] = []
        for file, name in named.items():
            if name in _UNNAMED:
                closeness = 2 if len(models) == 1 else None
            else:
                extends = name.startswith(f"{wanted}-") or wanted.startswith(f"{name}-")
                closeness = 0 if name == wanted else 1 if extends else None
            if closeness is not None:
                ranked.append((closeness, preference(file), file))
        return tuple(file for _, _, file in sorted(ranked))

    return of


def _own_stem(file: str) -> str:
    stem = _MARK.sub("-", _PART_END.sub("", file[: -len(_SUFFIX)])).strip("-_.")
    return _QUANTISATION.sub("", stem).casefold()


def preference(file: str) -> int:
    """Rank of a projector's precision, by its name; the least is the best."""
    lower = file.lower()
    # `f16` is part of `bf16`.
    return next(
        (rank for rank, kind in enumerate(_PREFERRED) if re.search(rf"(?<![a-z]){kind}", lower)),
        len(_PREFERRED),
    )
