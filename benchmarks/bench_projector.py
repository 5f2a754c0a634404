"""Writes a projector with random weights beside a model: `python -m benchmarks.bench_projector MODEL`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import gguf
import typer

from models.recipe.projector_fixtures import EncoderShape, write_projector

SIGLIP_BASE: Final = EncoderShape(size=448, patch=14, blocks=12, width=768, ff_width=3072, heads=12)
"""SigLIP's base size at 448 pixels; Gemma's projector makes 256 rows of its 1,024 patches."""


def main(model: Annotated[Path, typer.Argument(help="GGUF of a text model")]) -> None:
    """Write mmproj-MODEL.gguf, which jan-serve finds by its name; llama-server takes it with --mmproj."""
    fields = gguf.GGUFReader(str(model)).fields
    architecture = fields["general.architecture"].contents()
    width = fields[f"{architecture}.embedding_length"].contents()
    path = model.with_name(f"mmproj-{model.name}")
    write_projector(path, "gemma3", SIGLIP_BASE, n_embd=int(width))
    typer.echo(f"wrote {path}; measure with python -m benchmarks --model {model} --row first-image")


if __name__ == "__main__":
    typer.run(main)
