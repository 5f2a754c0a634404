"""The model of requests that name none, among several that no setting chooses from."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final

from jan_serve.core.models import HeaderFacts
from jan_serve.errors import InvalidModel, ModelNotFound
from jan_serve.store.files import raise_if_exhausted
from jan_serve.store.index import STATE_FOLDER, DefaultModel, ModelEntry

_MAX_BYTES: Final = 4096


class ChosenModel:
    """The default of one models folder, as a user chose it for this and later servers. Methods block on the disk."""

    def __init__(self, models_dir: Path, file: str = "default-model") -> None:
        self._file = models_dir / STATE_FOLDER / file

    def name(self) -> str | None:
        """Its canonical name. None if there is none; the model may be gone. Raises Unavailable."""
        try:
            with self._file.open("rb") as file:
                return os.fsdecode(file.read(_MAX_BYTES))
        except OSError as error:
            raise_if_exhausted(error)  # else the server would have another default for as long as it runs
            return None

    def choose(self, name: str | None) -> None:
        """None leaves the choice to the program. Raises OSError."""
        if name is None:
            self._file.unlink(missing_ok=True)
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_bytes(os.fsencode(name))


class LastModel:
    """The model of one models folder that was loaded last to write text before this process asked. What the process
    loads itself counts from the next start: requests without a name get the same model as long as a server runs. Each
    method blocks briefly on the disk."""

    def __init__(self, models_dir: Path) -> None:
        self._kept = ChosenModel(models_dir, "last-model")
        self._noted: str | None = None

    @cached_property
    def name(self) -> str | None:
        """Its canonical name. None if there is none; the model may be gone."""
        return self._kept.name()

    def note(self, name: str) -> None:
        """Keep the name for the next start, where the folder can be written."""
        if name != (self._noted or self.name):
            with contextlib.suppress(OSError):
                # A hint, written with every change of models: a torn one names no model, and chooses nothing.
                self._kept.choose(name)
                self._noted = name


_CHATS, _CONTINUES, _POOLS = range(3)


def _kind(facts: HeaderFacts) -> int:
    if not facts.writes_text:
        return _POOLS
    return _CONTINUES if facts.is_base else _CHATS


def likeliest(
    entries: Sequence[ModelEntry], last: str | None, facts_of: Callable[[ModelEntry], HeaderFacts]
) -> DefaultModel | None:
    """A model that chats, else one that continues text, else any; of these the one used last, else the newest file.
    last: name of the model used last. facts_of: reads a header that the index lacks, and raises InvalidModel or
    ModelNotFound; called as often as it takes. None if no model can be served."""
    found: ModelEntry | None = None
    kind, n_servable = _POOLS + 1, 0
    for entry in sorted(entries, key=lambda entry: (entry.name != last, -entry.modified_ns, entry.name)):
        try:
            own_kind = _kind(facts_of(entry))
        except (InvalidModel, ModelNotFound):
            continue
        n_servable += 1
        if own_kind < kind:
            found, kind = entry, own_kind
        if kind == _CHATS and (n_servable > 1 or entry.name == last):
            break
    if found is None:
        return None
    if n_servable == 1 and found.name != last:
        return DefaultModel(found, "the only model in the models folder that can be served")
    reason = "used last" if found.name == last else f"the newest of {len(entries)} models"
    return DefaultModel(found, reason if kind == _CHATS else f"{reason}; none of them chats")
