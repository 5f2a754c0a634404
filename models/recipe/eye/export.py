"""Writes the projector, and the text model that reads what it gives, from a training run.

python -m models.recipe.eye.export build/jan-tiny-eye models/builtin/jan-tiny.gguf models/builtin/mmproj-jan-tiny.gguf
"""

# The training packages are apart from the product's environment, in which types are checked.
# pyright: reportMissingImports=false

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from models.recipe.chat_template import CHAT_TEMPLATE
from models.recipe.export_gguf import METADATA
from models.recipe.eye.convnet import Eye
from models.recipe.eye.plan import EyePlan
from models.recipe.eye.projector_file import write_projector
from models.recipe.eye.text_model import TextModel
from models.recipe.gguf_file import write_llama_gguf

DESCRIPTION = "The eye of jan-tiny: shapes, colours, counts, digits and places in small pictures."


def load_eye(run: Path) -> Eye:
    """The encoder and projector of a training run."""
    state: dict[str, Any] = torch.load(run / "eye.pt", weights_only=True)
    width = state["eye"]["mm__2__bias"].numel()
    eye = Eye(EyePlan(**state["plan"]).shape(width), seed=0)
    eye.load_state_dict(state["eye"])
    return eye


def export_projector(run: Path, path: Path) -> None:
    """Write ``path`` from the checkpoint of the eye in the folder ``run``."""
    eye = load_eye(run)
    tensors = {name: eye.weight(name).detach().numpy() for name in eye.shape.tensor_shapes()}
    kept = {key: text for key, text in METADATA.items() if key != "general.size_label"}
    write_projector(path, eye.shape, tensors, metadata=kept | {"general.description": DESCRIPTION})


def export_text(runs: Sequence[Path], model: Path, path: Path, *, share: float) -> None:
    """Write ``path``, which lies at ``share`` of the way from ``model`` to the mean of what the ``runs`` made of it.

    As in Wortsman et al., "Robust fine-tuning of zero-shot models" and "Model soups" (2022): what the text model knew
    comes back sooner than what it learned is lost.
    """
    text = TextModel(model)
    before = {name: weight.detach() for name, weight in text.learned().items()}
    learned = [torch.load(run / "reading.pt", weights_only=True)["weights"] for run in runs]
    text.load(
        {
            name: torch.lerp(weight, torch.stack([each[name] for each in learned]).mean(0), share)
            for name, weight in before.items()
        }
    )
    write_llama_gguf(
        path,
        text.shape,
        text.vocabulary,
        text.tensors(),
        chat_template=CHAT_TEMPLATE,
        metadata=METADATA,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Write the GGUFs of the projector and of the text model that reads what it gives."
    )
    parser.add_argument("run", type=Path, help="output folder of the training")
    parser.add_argument(
        "--mean-with", type=Path, nargs="*", default=[], help="output folders of other readings"
    )
    parser.add_argument("--text-share", type=float, default=EyePlan.text_share)
    parser.add_argument("text", type=Path, help="GGUF file of the text model: read, and written again")
    parser.add_argument("projector", type=Path, help="GGUF file to write")
    arguments = parser.parse_args()
    runs = [arguments.run, *arguments.mean_with]
    export_text(runs, arguments.text, arguments.text, share=arguments.text_share)
    export_projector(arguments.run, arguments.projector)


if __name__ == "__main__":
    main()
