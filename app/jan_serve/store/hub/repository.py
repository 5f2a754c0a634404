"""The GGUF files of a repository on the hub, as its untrusted listing names them, and which a reference means."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from typing import Final, NoReturn
from urllib.parse import quote

import httpx2
import msgspec

from jan_serve.core.latest_tag import LATEST_TAG
from jan_serve.errors import HubAccessDenied, HubError, HubNotFound, InvalidRequest, JanServeError
from jan_serve.store.file_names import files_from, is_model_name, is_projector_name, preference
from jan_serve.store.gguf.quantisation import quantisation_of
from jan_serve.store.hub.hub_http import HubHttp
from jan_serve.store.hub.references import HubReference, checked_digest, is_safe_file

MAX_LISTING_BYTES: Final = 32 << 20
MAX_FILE_BYTES: Final = 1 << 42
_COMMIT: Final = re.compile(r"[0-9a-f]{40,64}\Z")

_log: Final = logging.getLogger("jan_serve.store")


class HubFile(msgspec.Struct, frozen=True):
    """path: a safe relative path. sha256: 64 lower-case hexadecimal digits."""

    path: str
    size_bytes: int
    sha256: str

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


class HubModel(msgspec.Struct, frozen=True):
    """The file of a model, or all parts of a split model in order."""

    files: tuple[HubFile, ...]

    @property
    def n_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    @property
    def quantisation(self) -> str | None:
        """The quantisation that the first file's name says, else its folder's."""
        return quantisation_of(self.files[0].name) or quantisation_of(self.files[0].path)


class Repository(msgspec.Struct, frozen=True):
    """The GGUF files of a repository at one commit."""

    repo: str
    commit: str
    models: tuple[HubModel, ...]
    projectors: tuple[HubFile, ...]


class _Lfs(msgspec.Struct, frozen=True):
    sha256: str
    size: int


class _Sibling(msgspec.Struct, frozen=True):
    rfilename: str
    lfs: _Lfs | None = None


class _Listing(msgspec.Struct, frozen=True):
    sha: str
    siblings: list[_Sibling] = []


async def read_repository(http: HubHttp, reference: HubReference) -> Repository:
    """Read the repository at the reference's revision (default: `main`).

    Raises HubNotFound, HubAccessDenied, HubError, HubUnavailable, Offline.
    """
    revision = reference.revision or "main"
    url = f"{http.access.endpoint}/api/models/{reference.repo}/revision/{quote(revision, safe='')}"
    answer = await http.answer(url, MAX_LISTING_BYTES, params={"blobs": "true"})
    if answer.status >= 400:
        raise_for_status(http, reference, answer.status, answer.headers)
    try:
        listing = msgspec.json.decode(answer.content, type=_Listing)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        got = f"{answer.headers.get('content-type', 'no type')[:80]!a}, {len(answer.content)} bytes"
        raise HubError(f"{http.host} does not answer as a model hub does: {got}.") from None
    if not _COMMIT.match(listing.sha):
        raise HubError(f"{http.host} gives no commit for {reference.repo}.")
    files = list(_gguf_files(listing.siblings))
    return Repository(
        reference.repo,
        listing.sha,
        models=tuple(_grouped([file for file in files if is_model_name(file.name)])),
        projectors=tuple(file for file in files if is_projector_name(file.name)),
    )


def file_url(endpoint: str, repo: str, commit: str, path: str) -> str:
    return f"{endpoint}/{repo}/resolve/{commit}/{quote(path)}"


def raise_for_status(
    http: HubHttp, reference: HubReference, status: int, headers: httpx2.Headers
) -> NoReturn:
    """Raise the error for a status of 400 and above, with advice."""
    # Imported late: needed only after a failure, and slow to import.
    from huggingface_hub import errors as hub_errors
    from huggingface_hub.utils import hf_raise_for_status

    repo, has_token = reference.repo, http.access.token is not None
    request = httpx2.Request("GET", f"{http.access.endpoint}/api/models/{repo}")
    # The headers that huggingface_hub needs to classify errors, as far as httpx takes them again.
    names = ("x-error-code", "x-error-message", "x-request-id")
    kept = {name: headers[name] for name in names if name in headers and headers[name].isascii()}
    error: JanServeError = HubError(f"{http.host} answers {repo} with status {status}.")
    try:
        hf_raise_for_status(httpx2.Response(status, headers=kept, request=request))
    except hub_errors.GatedRepoError:
        page = f"{http.access.endpoint}/{repo}"
        then = "try again with this token" if has_token else "set HF_TOKEN to a token of that account"
        error = HubAccessDenied(f"{repo} is gated: accept its conditions at {page}, then {then}.")
    except hub_errors.RevisionNotFoundError:
        error = HubNotFound(f"{repo} has no revision {reference.revision or 'main'}.")
    except hub_errors.EntryNotFoundError:
        error = HubNotFound(f"{repo} has no file {reference.file or ''}.".replace("  ", " "))
    except hub_errors.DisabledRepoError:
        error = HubAccessDenied(f"{repo} was disabled by the hub.")
    except hub_errors.RepositoryNotFoundError:
        error = _no_repository(http, repo)
    except hub_errors.HfHubHTTPError:
        if status == 404 or (status == 401 and not has_token):
            error = _no_repository(http, repo)
        elif status in (401, 403):
            error = HubAccessDenied(
                f"{http.host} refuses {repo} with this token: check HF_TOKEN, and that its account may."
            )
    raise error


def select(repository: Repository, reference: HubReference) -> list[HubModel]:
    """The model with the reference's file or quantisation, else all models. Raises HubNotFound, InvalidRequest."""
    models = repository.models
    if not models:
        raise HubNotFound(
            f"{repository.repo} has no GGUF file that can be downloaded. Look for a repository whose name ends in"
            " -GGUF."
        )
    if reference.file is not None:
        return [_by_file(repository, reference.file)]
    if reference.tag is None or f":{reference.tag.lower()}" == LATEST_TAG:
        return list(models)
    label = reference.tag.upper()
    found = [model for model in models if model.quantisation == label]
    found = found or [m for m in models if m.quantisation and m.quantisation.removeprefix("UD-") == label]
    if not found:
        known = ", ".join(sorted({model.quantisation for model in models if model.quantisation}))
        has = known or "no known quantisation"
        raise HubNotFound(f"{repository.repo} has no {reference.tag}. It has: {has}.")
    only_one(repository, found)
    return found


def only_one(repository: Repository, models: Sequence[HubModel]) -> HubModel:
    """The only one of `models`. Raises InvalidRequest that lists the files if there are several."""
    if len(models) == 1:
        return models[0]
    names = ", ".join(f"{repository.repo}/{model.files[0].path}" for model in models[:6])
    raise InvalidRequest(
        f"{repository.repo} has {len(models)} files that this can be. Name one: {names}.", param="model"
    )


def best_projector(repository: Repository, model: HubModel, preferred: str | None = None) -> HubFile | None:
    """The projector for `model`: the preferred path, else one in its folder, the best precision first."""
    folder = model.files[0].path.rpartition("/")[0]

    def rank(file: HubFile) -> tuple[bool, bool, int, str]:
        is_elsewhere = file.path.rpartition("/")[0] != folder
        return file.path != preferred, is_elsewhere, preference(file.name), file.path

    return min(repository.projectors, key=rank, default=None)


def _by_file(repository: Repository, path: str) -> HubModel:
    for fold in (str, str.casefold):
        for model in repository.models:
            if any(fold(path) in (fold(file.path), fold(file.path[: -len(".gguf")])) for file in model.files):
                return model
    names = ", ".join(model.files[0].path for model in repository.models[:6])
    raise HubNotFound(f"{repository.repo} has no file {path}. It has: {names}.")


def _gguf_files(siblings: Iterable[_Sibling]) -> Iterable[HubFile]:
    for sibling in siblings:
        path = sibling.rfilename
        if not path.lower().endswith(".gguf") or sibling.lfs is None:
            continue
        if not is_safe_file(path):
            _log.warning("the hub lists a file whose name cannot be used", extra={"file": path[:200]})
            continue
        if not 0 < sibling.lfs.size <= MAX_FILE_BYTES:
            continue
        yield HubFile(path, sibling.lfs.size, checked_digest(sibling.lfs.sha256))


def _grouped(files: Sequence[HubFile]) -> Iterable[HubModel]:
    """Models by name, without incomplete split models."""
    by_path = {file.path: file for file in files}
    for file in sorted(files, key=lambda file: file.path):
        folder = file.path[: -len(file.name)]
        paths = [folder + name for name in files_from(file.name)]
        if paths and by_path.keys() >= set(paths):
            yield HubModel(tuple(by_path[path] for path in paths))


def _no_repository(http: HubHttp, repo: str) -> HubNotFound:
    hint = "" if http.access.token else " If it is private, set HF_TOKEN."
    if http.token_withheld:
        hint = " If it is private, use https: the token is not sent over plain http."
    return HubNotFound(f"There is no repository {repo} on {http.host}.{hint}")
