"""`jan-serve pull`: downloads a model from the hub into the models folder. Resumes after Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from jan_serve.cli.arguments import (
    ConfigOption,
    JsonOption,
    ModelsDirOption,
    argument,
    complete_catalogue,
    option,
)
from jan_serve.cli.client.pulling import DownloadProgress
from jan_serve.cli.commands.models.suggestions import chosen_model, show_catalogue
from jan_serve.cli.errors import INTERRUPTED, CommandError, WrongUse
from jan_serve.cli.options import make_data_folder, store_names, store_settings
from jan_serve.cli.output import output, size_text
from jan_serve.cli.server.hardware import free_memory
from jan_serve.config import Settings
from jan_serve.errors import InvalidRequest
from jan_serve.store.index import ModelRecord
from jan_serve.store.model_advice import PURPOSES
from jan_serve.wiring.parts import build_puller

if TYPE_CHECKING:
    from jan_serve.store.hub.pull import NewerFiles, PullPlan
    from jan_serve.store.resolve import ModelResolver


def pull(
    name: Annotated[
        str | None,
        argument(
            "NAME",
            "A name from the catalogue, org/repo, org/repo:QUANT, org/repo/file.gguf or hf.co/…",
            autocompletion=complete_catalogue,
        ),
    ] = None,
    revision: Annotated[
        str | None, option("--revision REV", "Branch, tag or commit of the repository.")
    ] = None,
    mmproj: Annotated[
        bool, option("--mmproj/--no-mmproj", "Include the projector, through which a model sees or hears.")
    ] = True,
    list_all: Annotated[bool, option("--list", "List the catalogue of suggested models instead.")] = False,
    purpose: Annotated[
        str | None, option("--for PURPOSE", f"Without NAME: what for. One of {', '.join(PURPOSES)}.")
    ] = None,
    update: Annotated[
        bool,
        option("--update", "List pulled models whose files are newer on the hub; pull NAME again if it is."),
    ] = False,
    config: ConfigOption = None,
    models_dir: ModelsDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Download a model. Without a quantisation, choose the best one that fits this machine.

    Without NAME, show three models of the catalogue that suit a purpose and this machine, and on a terminal ask which
    one to download.
    """
    if list_all:
        show_catalogue(as_json)
        return
    settings = store_settings(config, models_dir)
    if update:
        name = _to_update(*store_names(config, models_dir), name, as_json)
    elif name is None:
        name = chosen_model(purpose, as_json)
    if name is None:
        return
    try:
        plan, record = asyncio.run(_pull(settings, name, revision, mmproj))
    except InvalidRequest as error:
        raise WrongUse(error.message, "`jan-serve pull --list` shows suggestions.") from None
    except KeyboardInterrupt:
        raise CommandError("Stopped.", "Run the same command to resume the download.", INTERRUPTED) from None
    if as_json:
        output.json(_as_json(plan, record, settings.models_dir))
        return
    output.data(record.name)
    names = ", ".join((record.name, *record.aliases))
    output.note(f"Ready ({size_text(plan.n_bytes)}). Names for requests: {names}")


def _to_update(settings: Settings, resolver: ModelResolver, name: str | None, as_json: bool) -> str | None:
    """The reference of the named model if the hub has newer files of it; else None, and what is newer is shown."""
    entries = resolver.entries() if name is None else (resolver.resolve(name),)
    records = [
        each.record for each in entries if each.record is not None and each.record.source.kind == "hub"
    ]
    if name is not None and not records:
        raise WrongUse(f"`{name}` was not pulled from the hub.", "`jan-serve ls` lists the models.")
    found = asyncio.run(build_puller(settings).newer(records))
    newer = [each for each in found if not each.gone]
    if name is not None and newer:
        return newer[0].reference
    if as_json:
        output.json({"checked": len(records), "models": [_newer_as_json(each) for each in found]})
        return None
    if found:
        output.table(
            ("name", "pulled", "hub", "to download"),
            [
                (
                    each.model,
                    (each.pulled or "")[:8],
                    "gone" if each.commit is None else each.commit[:8],
                    "" if each.gone else size_text(each.n_bytes),
                )
                for each in found
            ],
        )
    if newer:
        output.note(f"`jan-serve pull --update {newer[0].model}` downloads its newer files.")
    else:
        output.note("No pulled model has newer files on the hub.")
    return None


def _newer_as_json(newer: NewerFiles) -> dict[str, Any]:
    return {
        "name": newer.model,
        "reference": newer.reference,
        "pulled": newer.pulled,
        "commit": newer.commit,
        "files": list(newer.files),
        "size_bytes": newer.n_bytes,
        "gone": newer.gone,
    }


async def _pull(
    settings: Settings, name: str, revision: str | None, with_projector: bool
) -> tuple[PullPlan, ModelRecord]:
    puller = build_puller(settings, free_memory)
    plan = await puller.plan(name, revision=revision, with_projector=with_projector)
    if plan.reason is not None:
        output.note(f"Chose {plan.reason}")
    first = plan.model.files[0].name
    extra = f" and {plan.projector.name}" if plan.projector else ""
    parts = f" ({len(plan.model.files)} files)" if len(plan.model.files) > 1 else ""
    output.note(f"{plan.reference.repo}: {first}{parts}{extra}, {size_text(plan.n_bytes)}")
    make_data_folder(settings)
    with contextlib.closing(DownloadProgress(first, plan.n_bytes)) as progress:
        return plan, await puller.run(plan, progress)


def _as_json(plan: PullPlan, record: ModelRecord, models_dir: Path) -> dict[str, Any]:
    return {
        "name": record.name,
        "aliases": list(record.aliases),
        "path": str(models_dir / record.files[0].path),
        "size_bytes": plan.n_bytes,
        "repo": plan.reference.repo,
        "revision": plan.commit,
        "quantisation": plan.model.quantisation,
        "reason": plan.reason,
        "files": [
            {"path": str(models_dir / file.path), "size_bytes": file.size_bytes, "sha256": file.sha256}
            for file in (*record.files, *((record.projector,) if record.projector else ()))
        ],
    }
