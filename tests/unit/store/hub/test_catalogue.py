"""Short names, and that every entry that ships is a reference to the hub."""

from __future__ import annotations

import pytest

from jan_serve.errors import HubNotFound
from jan_serve.resources import catalogue_file
from jan_serve.store.gguf.quantisation import quantisation_of
from jan_serve.store.hub.catalogue import Catalogue
from jan_serve.store.hub.references import HubReference, checked_repo, is_safe_file


def test_the_shipped_catalogue() -> None:
    catalogue = Catalogue.read(catalogue_file())
    entries = catalogue.entries()
    assert len(entries) >= 10
    for entry in entries:
        checked_repo(entry.repo)
        assert is_safe_file(entry.file)
        assert quantisation_of(entry.file) == entry.quantization
        reference, found = catalogue.reference(entry.name.upper())
        assert (reference, found) == (HubReference(entry.repo, file=entry.file), entry)


def test_names_with_another_quantisation_and_unknown_ones() -> None:
    catalogue = Catalogue.read(catalogue_file())
    entry = catalogue.entries()[0]
    assert catalogue.reference(f"{entry.name}:Q2_K")[0] == HubReference(entry.repo, tag="Q2_K")
    assert catalogue.reference(f"{entry.name}:latest")[0].file == entry.file
    with pytest.raises(HubNotFound, match=f"Did you mean.*{entry.name}"):
        catalogue.reference(entry.name[:-1])
    with pytest.raises(HubNotFound, match="pull --list"):
        catalogue.reference("zzzzzzzz")
    assert Catalogue.read(None).entries() == ()
