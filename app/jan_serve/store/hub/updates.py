"""Finds pulled models whose files have newer versions on the hub, by the digests that the pull recorded."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from jan_serve.errors import HubAccessDenied, HubNotFound
from jan_serve.store.hub.hub_http import HubAccess, HubHttp, RetryPolicy
from jan_serve.store.hub.references import HubReference
from jan_serve.store.hub.repository import Repository, read_repository
from jan_serve.store.index import FileRecord, ModelRecord


class NewerFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The files of a pulled model that differ from the hub's.

    reference: pulls them. commit: the hub's. n_bytes: to download. gone: the hub has the model no more, or refuses it.
    """

    model: str
    reference: str
    pulled: str | None
    commit: str | None = None
    files: tuple[str, ...] = ()
    n_bytes: int = 0
    gone: bool = False


async def newer_files(
    records: Iterable[ModelRecord], access: HubAccess, retry_policy: RetryPolicy | None = None
) -> list[NewerFiles]:
    """Asks this hub about each repository that models were pulled from, one request each, and compares digests.

    Raises HubError, HubUnavailable, Offline.
    """
    public = HubAccess().endpoint
    ours = [
        record
        for record in records
        if record.source.kind == "hub" and (record.source.endpoint or public) == access.endpoint
    ]
    listed: dict[str, Repository | None] = {}
    async with HubHttp(access, retry_policy) as http:
        for repo in sorted({record.source.name for record in ours}):
            try:
                listed[repo] = await read_repository(http, HubReference(repo))
            except (HubNotFound, HubAccessDenied):
                listed[repo] = None
    found = (_compared(record, listed[record.source.name]) for record in ours)
    return sorted((newer for newer in found if newer is not None), key=lambda newer: newer.model)


def _compared(record: ModelRecord, repository: Repository | None) -> NewerFiles | None:
    repo = record.source.name
    own = [*record.files, *((record.projector,) if record.projector else ())]
    paths = {_path_in(repo, file): file for file in own}
    reference = f"{repo}/{_path_in(repo, record.files[0])}"
    models = () if repository is None else repository.models
    model = next((model for model in models if f"{repo}/{model.files[0].path}" == reference), None)
    if repository is None or model is None:
        return NewerFiles(model=record.name, reference=reference, pulled=record.source.revision, gone=True)
    now = (*model.files, *(file for file in repository.projectors if file.path in paths))
    changed = [file for file in now if file.path not in paths or paths[file.path].sha256 != file.sha256]
    if not changed:
        return None
    return NewerFiles(
        model=record.name,
        reference=reference,
        pulled=record.source.revision,
        commit=repository.commit,
        files=tuple(file.path for file in changed),
        n_bytes=sum(file.size_bytes for file in changed),
    )


def _path_in(repo: str, file: FileRecord) -> str:
    return file.path.removeprefix(f"{repo}/")
