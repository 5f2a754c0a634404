"""What `jan-serve pull` shows of the catalogue: all of it, or the models that suit a purpose and this machine."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import typer

from jan_serve.cli.errors import CommandError, WrongUse
from jan_serve.cli.output import output, size_text
from jan_serve.cli.server.hardware import free_memory
from jan_serve.errors import InvalidRequest
from jan_serve.resources import catalogue_file
from jan_serve.store.hub.references import Catalogue, CatalogueEntry
from jan_serve.store.model_advice import PURPOSES, Advice, Machine, advised, purpose_named, this_machine


def show_catalogue(as_json: bool) -> None:
    entries = Catalogue.read(catalogue_file()).entries()
    usable_gb = free_memory().usable / 1e9
    if as_json:
        output.json(
            {"models": [_as_json(entry) | {"fits": entry.memory_gb <= usable_gb} for entry in entries]}
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

    Asks for the purpose too if it is None, on a terminal.
    """
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


def _as_json(entry: CatalogueEntry) -> dict[str, Any]:
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
            _as_json(advice.entry)
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
