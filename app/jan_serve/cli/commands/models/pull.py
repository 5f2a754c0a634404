"""`jan-serve pull`: downloads a model from the hub, or shows those of the catalogue. Resumes after Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from jan_serve.cli.arguments import (
    ConfigOption,
    JsonOption,
    ModelsDirOption,
    argument,
    complete_catalogue,
    option,
)
from jan_serve.cli.client.loading import DownloadProgress
from jan_serve.cli.errors import INTERRUPTED, CommandError, WrongUse
from jan_serve.cli.options import make_data_folder, store_names, store_settings
from jan_serve.cli.output import output, size_text
from jan_serve.cli.server.hardware import free_memory
from jan_serve.config import Settings
from jan_serve.errors import InvalidRequest
from jan_serve.resources import catalogue_file
from jan_serve.store.hub.references import Catalogue, CatalogueEntry
from jan_serve.store.index import ModelRecord
from jan_serve.store.model_advice import PURPOSES, Advice, Machine, advised, purpose_named, this_machine
from jan_serve.wiring.parts import build_puller

if TYPE_CHECKING:
    from jan_serve.store.hub.pull import PullPlan
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
        models = [
            {
                "name": each.model,
                "reference": each.reference,
                "pulled": each.pulled,
                "commit": each.commit,
                "files": list(each.files),
                "size_bytes": each.n_bytes,
                "gone": each.gone,
            }
            for each in found
        ]
        output.json({"checked": len(records), "models": models})
        return None
    if found:
        rows = [
            (
                each.model,
                (each.pulled or "")[:8],
                (each.commit or "gone")[:8],
                "" if each.gone else size_text(each.n_bytes),
            )
            for each in found
        ]
        output.table(("name", "pulled", "hub", "to download"), rows)
    if newer:
        output.note(f"`jan-serve pull --update {newer[0].model}` downloads its newer files.")
    else:
        output.note("No pulled model has newer files on the hub.")
    return None


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


def show_catalogue(as_json: bool) -> None:
    entries = Catalogue.read(catalogue_file()).entries()
    usable_gb = free_memory().usable / 1e9
    if as_json:
        output.json(
            {"models": [_entry_as_json(entry) | {"fits": entry.memory_gb <= usable_gb} for entry in entries]}
        )
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


def chosen_model(purpose: str | None, as_json: bool) -> str | None:
    """The model that the user takes of those that suit a purpose; None where nobody is asked, and all are printed.
    Asks for the purpose too if it is None, on a terminal."""
    asks = may_ask() and not as_json
    if purpose is None:
        purpose = _asked_purpose() if asks else next(iter(PURPOSES))
    try:
        wanted = purpose_named(purpose)
    except InvalidRequest as error:
        raise WrongUse(f"--{error.message}.", "`jan-serve pull --for chat` is the default.") from None
    machine = this_machine(free_memory)
    found = advised(Catalogue.read(catalogue_file()).entries(), wanted, machine)
    if not found:
        raise CommandError(
            f"The catalogue has no model for {wanted.title}.", "Name a repository of the hub: org/repo."
        )
    if as_json:
        output.json(_advice_as_json(purpose, machine, found))
        return None
    _show(found)
    free = machine.free
    devices = "".join(f", {size_text(size)} on a graphics card" for size in free.accelerators)
    output.note(
        f"For {wanted.title}, on this machine: {size_text(free.usable)} free for models{devices}, {machine.cores}"
        f" cores, {size_text(round(machine.bandwidth))} a second from memory. Speeds are estimates for one answer."
    )
    if asks:
        number = _asked_number("Which one", len(found))
        return found[number - 1].entry.name
    output.note(
        f"`jan-serve pull {found[0].entry.name}` downloads the first one. --for: {', '.join(PURPOSES)}."
    )
    return None


def may_ask() -> bool:
    """Whether somebody sees a question, and can answer it."""
    return sys.stdin.isatty() and output.notes_on_terminal


def _asked_purpose() -> str:
    for number, purpose in enumerate(PURPOSES.values(), start=1):
        output.note(f"{number}  {purpose.title}")
    return list(PURPOSES)[_asked_number("What for", len(PURPOSES)) - 1]


def _asked_number(question: str, most: int) -> int:
    """A number from 1 to `most`; the return key alone means 1."""
    while True:
        answer = typer.prompt(f"{question} (1 to {most})?", default="1", err=True)
        if answer.isdecimal() and 1 <= int(answer) <= most:
            return int(answer)


def _show(found: list[Advice]) -> None:
    output.table(
        ("no", "name", "size", "needs", "speed", "licence", "why"),
        [
            (
                str(number),
                advice.entry.name,
                f"{advice.entry.size_gb:g} GB",
                f"{advice.entry.memory_gb:g} GB",
                "" if advice.speed is None else f"{advice.speed:.3g} tokens/s",
                advice.entry.licence,
                advice.reason,
            )
            for number, advice in enumerate(found, start=1)
        ],
        optional=("licence", "size"),
    )


def _entry_as_json(entry: CatalogueEntry) -> dict[str, Any]:
    return {name: value for name, value in msgspec.to_builtins(entry).items() if name != "mmproj"}


def _advice_as_json(purpose: str, machine: Machine, found: list[Advice]) -> dict[str, Any]:
    return {
        "for": purpose,
        "machine": {
            "memory_bytes": machine.free.usable,
            "accelerator_bytes": list(machine.free.accelerators),
            "cores": machine.cores,
            "bandwidth": machine.bandwidth,
        },
        "models": [
            _entry_as_json(advice.entry)
            | {
                "fits": advice.fits,
                "bytes_per_token": advice.bytes_per_token,
                "tokens_per_second": advice.speed,
                "reason": advice.reason,
                "command": f"jan-serve pull {advice.entry.name}",
            }
            for advice in found
        ],
    }
