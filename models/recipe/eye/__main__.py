"""``python -m models.recipe.eye``: teaches the built-in model to see, and writes it and its projector.

The text model learns to read rows while the eye learns to give them, in processes of their own. Options: those of
training, ``--text`` and ``--projector``.
"""

# The training packages are apart from the product's environment, in which types are checked.
# pyright: reportMissingImports=false

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from models.recipe.eye import reading, train
from models.recipe.eye.export import export_projector, export_text
from models.recipe.eye.plan import EyePlan

_BUILTIN = Path("models/builtin")


def teach(plan: EyePlan, model: Path, output: Path, *, resume: bool, processes: int = 1) -> None:
    """Run all that the checkpoints in ``output`` lack: seeing in one process, reading in ``processes`` more.

    With two cores and two that read, seeing takes what these leave while they wait for each other, and they have both
    cores when it has ended. Blocks for a good hour of two cores at the plan's sizes.
    """
    with ProcessPoolExecutor(1, get_context("spawn"), initializer=train.use_one_thread) as pool:
        seeing = pool.submit(train.train, plan, model, output, resume=resume)
        reading.train(plan, model, output, resume=resume, processes=processes)
        seeing.result()


def main() -> None:
    command = argparse.ArgumentParser(
        prog="python -m models.recipe.eye", description="Teach the built-in model to see."
    )
    train.add_arguments(command)
    command.add_argument("--text", type=Path, default=_BUILTIN / "jan-tiny.gguf", help="text model to write")
    command.add_argument(
        "--projector", type=Path, default=_BUILTIN / "mmproj-jan-tiny.gguf", help="projector to write"
    )
    arguments = command.parse_args()
    plan = train.plan_of(arguments)
    teach(plan, arguments.model, arguments.output, resume=arguments.resume, processes=arguments.processes)
    export_text([arguments.output], arguments.model, arguments.text, share=plan.text_share)
    export_projector(arguments.output, arguments.projector)
    print(f"wrote {arguments.text} and {arguments.projector}; measure them with models.recipe.eye.evaluate")


if __name__ == "__main__":
    main()
