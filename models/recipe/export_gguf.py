"""Converts a training checkpoint into the shipped GGUF.

python -m models.recipe.export_gguf build/jan-tiny models/builtin/jan-tiny.gguf
"""

# The training packages are apart from the product's environment, in which types are checked.
# pyright: reportMissingImports=false

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch

from models.recipe.chat_template import CHAT_TEMPLATE
from models.recipe.gguf_file import write_llama_gguf
from models.recipe.model import TinyLlama, tensors_of
from models.recipe.train import Plan
from models.recipe.vocabulary import Vocabulary

METADATA = {
    "general.name": "jan-tiny",
    "general.basename": "jan-tiny",
    "general.size_label": "3M",
    "general.description": "The built-in model of jan-serve: a very small chat model trained from scratch.",
    "general.author": "The jan-serve project",
    "general.license": "apache-2.0",
    "general.license.name": "Apache License 2.0",
}


def load_model(run: Path, *, averaged: bool = True) -> tuple[TinyLlama, Vocabulary]:
    """The model of a training run: the running average of its weights, or the last step's."""
    state: dict[str, Any] = torch.load(run / "checkpoint.pt", weights_only=True)
    model = TinyLlama(Plan(**state["plan"]).shape(), seed=0)
    model.load_state_dict(state["average"] if averaged else state["model"])
    return model, Vocabulary.load(run / "vocabulary.json")


def export(run: Path, path: Path, *, averaged: bool = True) -> None:
    """Write ``path`` from the checkpoint and the vocabulary of the folder ``run``."""
    model, vocabulary = load_model(run, averaged=averaged)
    tensors = {name: tensor.float().numpy() for name, tensor in tensors_of(model).items()}
    write_llama_gguf(path, model.shape, vocabulary, tensors, chat_template=CHAT_TEMPLATE, metadata=METADATA)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a GGUF from a training run.")
    parser.add_argument("run", type=Path, help="output folder of models.recipe.train")
    parser.add_argument("path", type=Path, help="GGUF file to write")
    parser.add_argument(
        "--last", action="store_true", help="the last step's weights, not their running average"
    )
    arguments = parser.parse_args()
    export(arguments.run, arguments.path, averaged=not arguments.last)


if __name__ == "__main__":
    main()
