"""`jan-serve pull`: downloads a model from the hub into the models folder. Resumes after Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jan_serve.cli.client.pulling import DownloadProgress
from jan_serve.cli.commands.completion import complete_catalogue
from jan_serve.cli.errors import INTERRUPTED, WRONG_USE, CommandError
from jan_serve.cli.options import ConfigOption, JsonOption, ModelsDirOption, make_data_folder, store_settings
from jan_serve.cli.output import Output, size_text
from jan_serve.cli.server.hardware import free_memory
from jan_serve.config import Settings
from jan_serve.errors import InvalidRequest
from jan_serve.resources import catalogue_file
from jan_serve.store.hub.references import Catalogue
from jan_serve.store.index import ModelRecord
from jan_serve.wiring.parts import build_puller

if TYPE_CHECKING:
    from jan_serve.store.hub.pull import PullPlan


def pull(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="A name from the catalogue, org/repo, org/repo:QUANT, org/repo/file.gguf or hf.co/…",
            autocompletion=complete_catalogue,
        ),
    ] = None,
    revision: Annotated[
        str | None, typer.Option("--revision", metavar="REV", help="Branch, tag or commit of the repository.")
    ] = None,
    mmproj: Annotated[
        bool,
        typer.Option(
            "--mmproj/--no-mmproj",
            help="Include the projector, through which a model sees or hears.",
        ),
    ] = True,
    show_catalogue: Annotated[
        bool, typer.Option("--list", help="List the catalogue of suggested models instead.")
    ] = False,
    config: ConfigOption = None,
    models_dir: ModelsDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Download a model. Without a quantisation, choose the best one that fits this machine."""
    output = Output()
    if show_catalogue:
        _show_catalogue(output, as_json)
        return
    if name is None:
        raise CommandError("Name the model to pull.", "`jan-serve pull --list` shows suggestions.", WRONG_USE)
    settings = store_settings(config, models_dir)
    try:
        plan, record = asyncio.run(_pull(settings, name, revision, mmproj, output))
    except InvalidRequest as error:
        raise CommandError(error.message, "`jan-serve pull --list` shows suggestions.", WRONG_USE) from None
    except KeyboardInterrupt:
        raise CommandError("Stopped.", "Run the same command to resume the download.", INTERRUPTED) from None
    if as_json:
        output.json(_as_json(plan, record, settings.models_dir))
        return
    output.data(record.name)
    names = ", ".join((record.name, *record.aliases))
    output.note(f"Ready ({size_text(plan.n_bytes)}). Names for requests: {names}")


async def _pull(
    settings: Settings, name: str, revision: str | None, with_projector: bool, output: Output
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
    with contextlib.closing(DownloadProgress(output, first, plan.n_bytes)) as progress:
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


def _show_catalogue(output: Output, as_json: bool) -> None:
    entries = Catalogue.read(catalogue_file()).entries()
    usable_gb = free_memory().usable / 1e9
    if as_json:
        fields = (
            "name",
            "title",
            "repo",
            "file",
            "quantization",
            "kinds",
            "parameters",
            "size_gb",
            "context",
        )
        fields += ("memory_gb", "licence", "note", "known_as")
        models = [
            {field: getattr(entry, field) for field in fields} | {"fits": entry.memory_gb <= usable_gb}
            for entry in entries
        ]
        output.json({"models": models})
        return
    output.table(
        ("name", "size", "needs", "fits", "kinds", "licence", "note"),
        [
            (
                entry.name,
                f"{entry.size_gb:g} GB",
                f"{entry.memory_gb:g} GB",
                "yes" if entry.memory_gb <= usable_gb else "no",
                " ".join(entry.kinds),
                entry.licence,
                entry.note,
            )
            for entry in entries
        ],
        optional=("licence", "kinds", "note", "size"),
    )
    output.note(
        f"{usable_gb:.3g} GB are free for models. `jan-serve pull NAME` downloads one. NAME can also be its name at"
        " Ollama (`qwen3:8b`), or any GGUF repository of the hub, as org/repo."
    )
