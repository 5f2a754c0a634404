"""`jan-serve show`: what the file of a model says, and where its parts would go on this machine."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import msgspec
import psutil

from jan_serve.cli.arguments import ConfigOption, JsonOption, ModelsDirOption, model_argument, option
from jan_serve.cli.commands.models.local import source_text
from jan_serve.cli.errors import FAILED, CommandError
from jan_serve.cli.options import store_names
from jan_serve.cli.output import output, size_text
from jan_serve.cli.server.hardware import accelerators
from jan_serve.placement.device_plan import plan_devices
from jan_serve.placement.report import advice, lines
from jan_serve.placement.workload import bytes_beside
from jan_serve.store.blobs import file_matches
from jan_serve.store.gguf.gguf_header import read_gguf_header
from jan_serve.store.gguf.model_file import ModelFile, ProjectorFile
from jan_serve.store.gguf.quantisation import quantisation_of
from jan_serve.store.index import ModelEntry
from jan_serve.store.measurements import certified

if TYPE_CHECKING:
    from jan_serve.config import Settings
    from jan_serve.store.resolve import ModelResolver


def show_fit(name: str, settings: Settings, resolver: ModelResolver, *, as_json: bool) -> None:
    """Print the plan that a load would make now. Blocks for a second while it asks llama.cpp for its devices.
    Raises InsufficientMemory with the figures, InvalidModel, SettingsError."""
    from jan_serve.wiring.model_sources import ModelSources  # slow, and only needed here

    sources = ModelSources(resolver, settings)
    engine = sources.needs(sources.resolve(name).source).settings
    beside = bytes_beside(engine, os.path.getsize)
    plan = plan_devices(engine, accelerators(settings.rpc), psutil.virtual_memory().total, beside)
    if as_json:
        output.json(
            {
                "n_ctx": plan.n_ctx,
                "n_gpu_layers": plan.n_gpu_layers,
                "parts": [msgspec.to_builtins(part) | {"total": part.total} for part in plan.shares],
                "text": lines(plan.shares),
                "advice": advice(plan.shares, plan.warning),
            }
        )
        return
    for line in (*lines(plan.shares), *advice(plan.shares, plan.warning)):
        output.data(line)


_LABELS: Final = {"size_bytes": "size", "weights_bytes": "weights", "n_ctx_train": "context"}


def show(
    name: Annotated[str, model_argument("Name of a model, or path of a GGUF file.", "NAME")],
    template: Annotated[bool, option("--template", "Print only the chat template.")] = False,
    verify: Annotated[bool, option("--verify", "Verify the SHA-256 digests of the files.")] = False,
    fit: Annotated[
        bool, option("--fit", "Show where its parts go on this machine now, and what would make it faster.")
    ] = False,
    config: ConfigOption = None,
    models_dir: ModelsDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the files, source, digests, names and header of a model."""
    settings, resolver = store_names(config, models_dir)
    entry = resolver.entry_of_path(name) or resolver.resolve(name)
    if template:
        text = read_gguf_header(entry.path).text("tokenizer.chat_template")
        if text is None:
            raise CommandError(f"{entry.name} has no chat template.")
        output.raw(text)
        return
    model = resolver.model_file(entry.path, entry.name)
    if fit:
        show_fit(name, settings, resolver, as_json=as_json)
        return
    facts = _facts(entry, model, resolver.projector(entry))
    facts["enough_for"] = list(certified(settings.data_dir, entry.name).values())
    if verify:
        facts["verified"] = _verify(entry, settings.models_dir)
    if as_json:
        output.json(facts)
    else:
        output.table(("", entry.name), [row for key, value in facts.items() for row in _rows(key, value)])
    if verify and facts["verified"] is False:
        raise CommandError(
            f"A file of {entry.name} differs from the downloaded one.",
            "Remove the model and pull it again.",
            FAILED,
        )


def _facts(entry: ModelEntry, model: ModelFile, projector: ProjectorFile | None) -> dict[str, Any]:
    record = entry.record
    source = record.source if record is not None else None
    return {
        "name": entry.name,
        "aliases": list(entry.all_aliases),
        "adapters": list(entry.adapters),
        "source": source_text(entry),
        "revision": source.revision if source is not None else None,
        "title": model.name,
        "architecture": model.architecture,
        "parameters": model.n_parameters,
        "quantisation": quantisation_of(entry.path.name) or model.quantisation,
        "n_ctx_train": model.n_ctx_train,
        "layers": model.n_layer,
        "chat_template": model.chat_template is not None,
        "pooling": model.pooling,
        "size_bytes": model.file_bytes,
        "weights_bytes": model.tensor_bytes,
        "files": [str(path) for path in model.paths],
        "links_to": str(entry.path.resolve()) if entry.path.is_symlink() else None,
        "projector": str(projector.path) if projector is not None else None,
        "modalities": ["text", *(projector.senses if projector is not None else ())],
        "sha256": [file.sha256 for file in record.files if file.sha256] if record is not None else [],
    }


def _verify(entry: ModelEntry, models_dir: Path) -> bool | None:
    """Whether the recorded digests match; None if none is recorded. Blocks while it reads all files."""
    record = entry.record
    files = [] if record is None else [*record.files, *((record.projector,) if record.projector else ())]
    known = [(models_dir / file.path, file.size_bytes, file.sha256) for file in files if file.sha256]
    if not known:
        return None
    return all(asyncio.run(file_matches(path, size, digest)) for path, size, digest in known)


def _rows(key: str, value: Any) -> list[tuple[str, str]]:
    """A row for a value that is known, one for each item of a list."""
    items = cast(list[Any], value) if isinstance(value, list) else [value]
    texts = [text for item in items if (text := _text(key, item))]
    labels = (_LABELS.get(key, key.replace("_", " ")), *[""] * len(texts))
    return list(zip(labels, texts, strict=False))


def _text(key: str, value: Any) -> str:
    if value is None:
        return "unknown: no digest of its files is recorded" if key == "verified" else ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if key.endswith("_bytes"):
        return size_text(value)
    if key == "parameters":
        unit, word = (10**9, " billion") if value >= 10**9 else (10**6, " million")
        return f"{value / unit:.3g}{word}" if value >= unit else f"{value:,}"
    return str(value)
