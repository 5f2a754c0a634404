"""Writes the projector's GGUF from a training run.

python -m models.recipe.eye.export build/jan-tiny-eye models/builtin/mmproj-jan-tiny.gguf
"""

# The training packages are apart from the product's environment, in which types are checked.
# pyright: reportMissingImports=false

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch

from models.recipe.eye.convnet import Eye
from models.recipe.eye.plan import EyePlan
from models.recipe.eye.projector_file import write_projector

METADATA = {
    "general.name": "jan-tiny",
    "general.basename": "jan-tiny",
    "general.description": "The eye of jan-tiny: shapes, colours, counts, digits and places in small pictures.",
    "general.author": "The jan-serve project",
    "general.license": "apache-2.0",
    "general.license.name": "Apache License 2.0",
}


def load_eye(run: Path) -> Eye:
    """The encoder and projector of a training run."""
    state: dict[str, Any] = torch.load(run / "checkpoint.pt", weights_only=True)
    width = state["eye"]["mm__2__bias"].numel()
    eye = Eye(EyePlan(**state["plan"]).shape(width), seed=0)
    eye.load_state_dict(state["eye"])
    return eye


def export(run: Path, path: Path) -> None:
    """Write ``path`` from the checkpoint of the folder ``run``."""
    eye = load_eye(run)
    tensors = {name: eye.weight(name).detach().numpy() for name in eye.shape.tensor_shapes()}
    write_projector(path, eye.shape, tensors, metadata=METADATA)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the projector's GGUF from a training run.")
    parser.add_argument("run", type=Path, help="output folder of models.recipe.eye.train")
    parser.add_argument("path", type=Path, help="GGUF file to write")
    arguments = parser.parse_args()
    export(arguments.run, arguments.path)


if __name__ == "__main__":
    main()
