"""Which files of a listing are models, and which of them a reference means."""

from __future__ import annotations

from typing import Any

import httpx2
import msgspec
import pytest

from jan_serve.errors import HubError, HubNotFound, InvalidRequest
from jan_serve.store.hub.hub_http import HubAccess, HubResponse
from jan_serve.store.hub.references import HubReference, parse_reference
from jan_serve.store.hub.repository import (
    MAX_FILE_BYTES,
    HubFile,
    Repository,
    best_projector,
    file_url,
    read_repository,
    select,
)

pytestmark = pytest.mark.anyio

COMMIT = "c" * 40
DIGEST = "0123456789abcdef" * 4


class Hub:
    """Answers every listing with the same bytes, and keeps the URL."""

    access = HubAccess("https://hub.example")
    host = "hub.example"
    token_withheld = False

    def __init__(self, content: bytes, status: int = 200) -> None:
        self.content, self.status = content, status
        self.headers = httpx2.Headers({"content-type": "text/html"})
        self.asked: list[tuple[str, Any]] = []

    async def answer(self, url: str, max_bytes: int, params: Any = None) -> HubResponse:
        self.asked.append((url, params))
        return HubResponse(self.status, self.headers, self.content)


def listing(*paths: str, **sizes: int) -> bytes:
    """The hub's answer. sizes: of files called so, with `.gguf`."""
    files = [(path, 100) for path in paths] + [(f"{name}.gguf", size) for name, size in sizes.items()]
    siblings = [{"rfilename": path, "lfs": {"sha256": DIGEST, "size": size}} for path, size in files]
    return msgspec.json.encode({"sha": COMMIT, "siblings": siblings})


async def read(content: bytes, reference: str = "org/m") -> Repository:
    hub: Any = Hub(content)
    return await read_repository(hub, parse_reference(reference))


def paths(repository: Repository) -> list[list[str]]:
    return [[file.path for file in model.files] for model in repository.models]


async def test_the_revision_is_one_part_of_the_address() -> None:
    hub: Any = Hub(listing("a.gguf"))
    await read_repository(hub, HubReference("org/m", revision="refs/pr/1"))
    await read_repository(hub, HubReference("org/m"))
    base = "https://hub.example/api/models/org/m/revision"
    assert hub.asked == [
        (f"{base}/refs%2Fpr%2F1", {"blobs": "true"}),
        (f"{base}/main", {"blobs": "true"}),
    ]


def test_a_file_is_pinned_to_its_commit() -> None:
    url = file_url("https://hub.example", "org/m", COMMIT, "a folder/m#1.gguf")
    assert url == f"https://hub.example/org/m/resolve/{COMMIT}/a%20folder/m%231.gguf"


async def test_files_that_are_no_models_are_left_out() -> None:
    content = listing("m.gguf", "M-Q8_0.GGUF", "README.md", "mmproj-m-F16.gguf", "m.imatrix.gguf", "../x.gguf",
                      empty=0, huge=MAX_FILE_BYTES + 1, largest=MAX_FILE_BYTES)  # fmt: skip
    without_digest = {"rfilename": "plain.gguf"}
    values = msgspec.json.decode(content)
    values["siblings"].append(without_digest)
    repository = await read(msgspec.json.encode(values))
    assert paths(repository) == [["M-Q8_0.GGUF"], ["largest.gguf"], ["m.gguf"]]
    assert [file.path for file in repository.projectors] == ["mmproj-m-F16.gguf"]


async def test_parts_become_one_model_if_all_are_there() -> None:
    whole = [f"q4/m-Q4_K_M-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
    broken = ["q8/m-Q8_0-00001-of-00002.gguf", "m-Q8_0-00002-of-00002.gguf"]
    odd = ["none-00001-of-00000.gguf", "many-00001-of-99999.gguf"]
    repository = await read(listing(*reversed(whole), *broken, *odd))
    assert paths(repository) == [whole]
    [model] = repository.models
    assert (model.n_bytes, model.quantisation) == (300, "Q4_K_M")


async def test_the_quantisation_may_be_that_of_the_folder() -> None:
    repository = await read(listing("Q4_K_M/model.gguf"))
    assert [model.quantisation for model in repository.models] == ["Q4_K_M"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "does not answer as a model hub"),
        (b"[" * 5000, "does not answer as a model hub"),
        (b'{"sha": "\xff"}', "does not answer as a model hub"),
        (b'{"sha": "main"}', "gives no commit"),
        (listing("a.gguf").replace(DIGEST.encode(), b"x"), "digest"),
    ],
    ids=range(5),
)
async def test_other_answers_are_refused(content: bytes, words: str) -> None:
    with pytest.raises(HubError, match=words):
        await read(content)


FILES = ("m-Q4_K_M.gguf", "m-UD-Q8_0.gguf", "b/m-Q4_0.gguf", "B/other.gguf")


@pytest.mark.parametrize(
    ("reference", "chosen"),
    [
        ("org/m", [*FILES]),
        ("org/m:latest", [*FILES]),
        ("org/m:q4_k_m", ["m-Q4_K_M.gguf"]),
        ("org/m:Q8_0", ["m-UD-Q8_0.gguf"]),
        ("org/m:UD-Q8_0", ["m-UD-Q8_0.gguf"]),
        ("org/m/m-Q4_K_M.gguf", ["m-Q4_K_M.gguf"]),
        ("org/m/M-q4_k_m", ["m-Q4_K_M.gguf"]),
        ("org/m/b/M-Q4_0", ["b/m-Q4_0.gguf"]),
    ],
)
async def test_a_reference_chooses(reference: str, chosen: list[str]) -> None:
    parsed = parse_reference(reference)
    models = select(await read(listing(*FILES)), parsed)
    assert sorted(model.files[0].path for model in models) == sorted(chosen)


async def test_exact_case_comes_first() -> None:
    repository = await read(listing("M.gguf", "m.gguf"))
    for name in ("M.gguf", "m.gguf"):
        assert select(repository, HubReference("org/m", file=name))[0].files[0].path == name


async def test_any_part_names_its_model() -> None:
    parts = [f"m-0000{number}-of-00002.gguf" for number in (1, 2)]
    [model] = select(await read(listing(*parts)), HubReference("org/m", file=parts[1]))
    assert [file.path for file in model.files] == parts


@pytest.mark.parametrize(
    ("files", "reference", "error", "words"),
    [
        (("README.md",), "org/m", HubNotFound, "no GGUF file that can be downloaded"),
        (FILES, "org/m:Q2_K", HubNotFound, r"has no Q2_K\. It has: Q4_0, Q4_K_M, UD-Q8_0\."),
        (("m.gguf",), "org/m:Q2_K", HubNotFound, "It has: no known quantisation"),
        (FILES, "org/m/none.gguf", HubNotFound, r"no file none\.gguf\. It has: B/other\.gguf, "),
        (("a-Q8_0.gguf", "b-Q8_0.gguf"), "org/m:Q8_0", InvalidRequest, r"2 files .*: org/m/a-Q8_0\.gguf, org/m/b"),
    ],
)  # fmt: skip
async def test_what_cannot_be_chosen_is_explained(
    files: tuple[str, ...], reference: str, error: type[Exception], words: str
) -> None:
    repository = await read(listing(*files))
    with pytest.raises(error, match=words):
        select(repository, parse_reference(reference))


@pytest.mark.parametrize(
    ("names", "preferred", "best"),
    [
        ((), None, None),
        (("mmproj-F32.gguf", "mmproj-BF16.gguf", "mmproj-F16.gguf"), None, "mmproj-F16.gguf"),
        (("mmproj-F32.gguf", "mmproj-Q8_0.gguf"), None, "mmproj-Q8_0.gguf"),
        (("mmproj.gguf", "mmproj-F32.gguf"), None, "mmproj-F32.gguf"),
        (("mmproj-F16.gguf", "q/mmproj-F32.gguf"), None, "q/mmproj-F32.gguf"),
        (("mmproj-F16.gguf", "q/mmproj-F32.gguf"), "mmproj-F16.gguf", "mmproj-F16.gguf"),
        (("mmproj-F16.gguf",), "gone.gguf", "mmproj-F16.gguf"),
    ],
)
async def test_the_projector(names: tuple[str, ...], preferred: str | None, best: str | None) -> None:
    repository = await read(listing("q/m-Q4_K_M.gguf", *names))
    found: HubFile | None = best_projector(repository, repository.models[0], preferred)
    assert (found.path if found is not None else None) == best


@pytest.mark.parametrize("name", ["x-error-code", "x-error-message", "x-request-id"])
async def test_headers_of_an_error_that_are_not_ascii_do_not_count(name: str) -> None:
    hub: Any = Hub(b"", status=404)
    hub.headers = httpx2.Headers([(name.encode(), b"\xe9")])
    with pytest.raises(HubNotFound, match="no repository org/m"):
        await read_repository(hub, parse_reference("org/m"))
