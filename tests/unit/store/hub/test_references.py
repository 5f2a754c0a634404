"""What people type for a model on the hub. Hostile names are among the integration tests, with a hub that records."""

from __future__ import annotations

import pytest

from jan_serve.errors import HubError, HubNotFound, InvalidRequest
from jan_serve.resources import catalogue_file
from jan_serve.store.gguf.quantisation import quantisation_of
from jan_serve.store.hub.references import (
    Catalogue,
    HubReference,
    checked_digest,
    checked_repo,
    checked_revision,
    is_safe_file,
    parse_reference,
)

REPO = "org/Repo-GGUF"
HUB = "https://huggingface.co"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (REPO, HubReference(REPO)),
        (f"{REPO}:Q4_K_M", HubReference(REPO, tag="Q4_K_M")),
        (f"hf.co/{REPO}:q8_0", HubReference(REPO, tag="q8_0")),
        (f"huggingface.co/{REPO}", HubReference(REPO)),
        (f"hf://{REPO}/a.gguf", HubReference(REPO, file="a.gguf")),
        (f"{HUB}/{REPO}", HubReference(REPO)),
        (f"{HUB}/{REPO}/", HubReference(REPO)),
        (f"{HUB}/{REPO}?show_file_info=a.gguf", HubReference(REPO)),
        (f"{HUB}/{REPO}/tree/main", HubReference(REPO, revision="main")),
        (f"{HUB}/{REPO}/blob/main/a.gguf", HubReference(REPO, file="a.gguf", revision="main")),
        (
            f"{HUB}/{REPO}/resolve/0123abc/Q4/a-00001-of-00002.gguf?download=true",
            HubReference(REPO, file="Q4/a-00001-of-00002.gguf", revision="0123abc"),
        ),
        (f"{REPO}/sub/a b.gguf", HubReference(REPO, file="sub/a b.gguf")),
        ("a/b", HubReference("a/b")),
    ],
)
def test_references(text: str, expected: HubReference) -> None:
    assert parse_reference(text) == expected


@pytest.mark.parametrize(
    "text", ["name", "org/", "/repo", "org/repo:", "org/repo:a b", "org/re:po/a.gguf", "x" * 600]
)
def test_invalid_references(text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_reference(text)
    assert caught.value.param == "model"


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1:8000", "huggingface.co.evil.example", "x@huggingface.co"]
)
def test_other_hosts_are_refused(host: str) -> None:
    with pytest.raises(InvalidRequest, match="is not the hub"):
        parse_reference(f"https://{host}/org/repo")


@pytest.mark.parametrize(
    "repo", ["org/repo/x", "org", "o rg/x", "../x", "org/..", "org/a..b", "org/x.", "nul/x", "é/x"]
)
def test_repositories(repo: str) -> None:
    assert checked_repo("bartowski/Llama-3.2_1B.GGUF") == "bartowski/Llama-3.2_1B.GGUF"
    with pytest.raises(InvalidRequest):
        checked_repo(repo)


def test_revisions() -> None:
    for revision in ("main", "v1.0", "refs/pr/3", "0" * 40, "feature+x"):
        assert checked_revision(revision) == revision
    for revision in ("", "../x", "a//b", "/a", "a/", "a b", "a\n", ".x", "a" * 300):
        with pytest.raises(InvalidRequest):
            checked_revision(revision)


def test_digests() -> None:
    assert checked_digest("0a" * 32) == "0a" * 32
    for digest in ("0A" * 32, "0" * 63, "0" * 64 + "\n", "sha256:" + "0" * 64, None, 7):
        with pytest.raises(HubError):
            checked_digest(digest)


@pytest.mark.parametrize(
    "path",
    ["", "/a", "a/", "a//b", "./a", "a/..", "a\\b", "c:a", "a\0", "a\n", "a\x1b[31m", ".a", "a/.b", "a.", "a ", " a",
     "con", "CON.gguf", "a/lpt1.gguf", "a|b", "a?", "a*", "<a>", '"', "a" * 201, "a/b/c/d/e"],
    ids=ascii,
)  # fmt: skip
def test_file_names_that_are_not_used(path: str) -> None:
    assert not is_safe_file(path)


def test_file_names_that_are() -> None:
    for path in (
        "a.gguf",
        "Q4_K_M/a-00001-of-00002.gguf",
        "a b.gguf",
        "模型.gguf",
        "console.gguf",
        "a..b.gguf",
    ):
        assert is_safe_file(path)


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
        for name in entry.known_as:
            assert catalogue.has(name) and catalogue.reference(f"{name.upper()}") == (reference, entry)
            assert catalogue.find(f"{name}:latest") == entry


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
