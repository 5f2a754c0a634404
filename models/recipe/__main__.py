"""``python -m models.recipe``: train, then write the GGUF. Takes the options of training, and ``--gguf``."""

# The training packages are apart from the product's environment, in which types are checked.
# pyright: reportMissingImports=false

from __future__ import annotations

import argparse
from pathlib import Path

from models.recipe.export_gguf import export
from models.recipe.train import add_arguments, train

_BUILTIN = Path("models/builtin/jan-tiny.gguf")


def main() -> None:
    command = argparse.ArgumentParser(
        prog="python -m models.recipe", description="Train and write the built-in model."
    )
    add_arguments(command)
    command.add_argument("--gguf", type=Path, default=_BUILTIN, help=f"file to write (default {_BUILTIN})")
    arguments = command.parse_args()
    train(arguments)
    export(arguments.output, arguments.gguf)
    print(f"wrote {arguments.gguf}; measure it with python -m models.recipe.evaluate {arguments.gguf}")


if __name__ == "__main__":
    main()
