"""``python -m models.recipe.eye``: train, then write the projector. Options: those of training, and ``--projector``."""

# The training packages are apart from the product's environment, in which types are checked.
# pyright: reportMissingImports=false

from __future__ import annotations

import argparse
from pathlib import Path

from models.recipe.eye.export import export
from models.recipe.eye.train import add_arguments, train_as

_BUILTIN = Path("models/builtin/mmproj-jan-tiny.gguf")


def main() -> None:
    command = argparse.ArgumentParser(
        prog="python -m models.recipe.eye", description="Train and write the projector of the built-in model."
    )
    add_arguments(command)
    command.add_argument(
        "--projector", type=Path, default=_BUILTIN, help=f"file to write (default {_BUILTIN})"
    )
    arguments = command.parse_args()
    train_as(arguments)
    export(arguments.output, arguments.projector)
    print(f"wrote {arguments.projector}; measure it with python -m models.recipe.eye.evaluate")


if __name__ == "__main__":
    main()
