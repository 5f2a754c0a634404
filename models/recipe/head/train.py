"""Trains the head to say what the built-in model says one token later. That model stays as it is.

    python -m models.recipe.head.train tests/integration/engine/drafting/jan-tiny-head.gguf [--tokens 600000]

The aim is the model's own distribution, of answers only: a draft is right where the model's sampler agrees. The second
pass reads the head's own states in place of the model's, as longer drafts do.
"""

# The training packages are apart from the product's environment, in which types are checked.
# pyright: reportMissingImports=false

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from models.recipe.batches import Batches, Packed, packed
from models.recipe.corpus.mixture import examples
from models.recipe.eye.text_model import TextModel, read_plainly
from models.recipe.head.head_file import write_head
from models.recipe.head.model import Head
from models.recipe.optimizer import Muon
from models.recipe.plan import Plan
from models.recipe.processes import ALONE
from models.recipe.tokenizer import Encoder
from models.recipe.train import keep_freed_memory
from models.recipe.vocabulary import END_OF_TEXT

_BUILTIN = Path("models/builtin/jan-tiny.gguf")
_PASSES = (1.0, 0.5)
"""Weights of the losses of the first and second token of a draft."""
_LOG_STEPS = 10
_GROUP = 6  # sequences of like length that are computed together


class HeadTrainer:
    """The head, its optimizers, and the batches of the corpus."""

    def __init__(self, text: TextModel, *, tokens: int, seed: int, rate: float = 4e-3) -> None:
        self.text, self.tokens, self.rate = text, tokens, rate
        self.head = Head(text.shape, seed=seed)
        parameters = list(self.head.parameters())
        matrices = [parameter for parameter in parameters if parameter.dim() == 2 and len(parameter) > 1]
        others = [parameter for parameter in parameters if not any(parameter is each for each in matrices)]
        self.optimizers: list[torch.optim.Optimizer] = [
            Muon(matrices, ALONE, lr=rate, weight_decay=0.02),
            torch.optim.AdamW(others, lr=rate, betas=(0.9, 0.95), weight_decay=0.0),
        ]
        self.seen = 0
        vocabulary = text.vocabulary
        stream = examples(f"head-{seed}", held_out=False, late=lambda: True, pieces=vocabulary.word_pieces())
        # Of the given text nothing is predicted.
        self.batches = Batches(Plan(prompt_weight=0.0), Encoder(vocabulary), stream)
        self.pad = vocabulary.id_of(END_OF_TEXT)

    def step(self) -> tuple[float, list[float]]:
        """One optimizer step: the loss in nats, and the share of right guesses of each pass."""
        done = min(1.0, self.seen / self.tokens)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self.rate * (0.02 + 0.49 * (1 + math.cos(math.pi * done)))
            optimizer.zero_grad(set_to_none=True)
        # The state of a sequence's end is not to be read beside the next one's first token: a row holds one of them.
        sequences = sorted(
            (each for row in next(self.batches) for each in row), key=lambda each: len(each.ids)
        )
        total = sum(len(sequence.ids) for sequence in sequences)
        loss, right, count = 0.0, [0.0] * len(_PASSES), 0
        for first in range(0, len(sequences), _GROUP):
            rows = [[sequence] for sequence in sequences[first : first + _GROUP]]
            part, guesses, wanted = self.losses(packed(rows, pad=self.pad))
            if wanted:
                (part / total).backward()
                loss += float(part.detach()) / total
            right = [sum(pair) for pair in zip(right, guesses, strict=True)]
            count += wanted
        torch.nn.utils.clip_grad_norm_(self.head.parameters(), 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
        self.seen += total
        return loss, [each / max(1, count) for each in right]

    def losses(self, rows: Packed) -> tuple[Tensor, list[float], int]:
        """The weighted sum of the passes' losses, right guesses of each, and how many were asked for."""
        length = rows.ids.shape[1]
        embeddings = self.text.embedded(rows.ids)
        mask = torch.full((length, length), float("-inf")).triu(1)
        with torch.no_grad():
            states = read_plainly(self.text, rows.ids, rows.mask)
        # The token at p and the state of p-1 give what follows p.
        wanted = rows.wanted[:, 1:-1]
        aim = F.linear(states[:, 1:-1][wanted], self.text.embedding)
        positions, mask = torch.arange(1, length - 1), mask[1:-1, 1:-1]
        hidden = states[:, :-2]
        loss, right = torch.zeros(()), list[float]()
        for weight in _PASSES:
            found = self.head(embeddings[:, 1:-1], hidden, positions, mask)
            logits = F.linear(found[wanted], self.text.embedding)
            loss = loss + weight * F.cross_entropy(logits, aim.softmax(-1), reduction="sum")
            right.append(float((logits.argmax(-1) == aim.argmax(-1)).sum()))
            hidden = torch.cat([hidden[:, :1], found[:, :-1]], 1)
        return loss, right, int(wanted.sum())


def train(text: TextModel, *, tokens: int, seed: int) -> Head:
    """A trained head; prints the loss and the shares of right guesses. Blocks."""
    trainer = HeadTrainer(text, tokens=tokens, seed=seed)
    steps = 0
    while trainer.seen < tokens:
        loss, right = trainer.step()
        steps += 1
        if steps % _LOG_STEPS == 0:
            shares = " ".join(f"{each:.3f}" for each in right)
            print(f"{trainer.seen} tokens, {time.process_time():.0f} s: {loss:.3f}, {shares}", flush=True)
    return trainer.head


def main() -> None:
    command = argparse.ArgumentParser(description="Train a head for further tokens of the built-in model.")
    command.add_argument("path", type=Path, help="GGUF file to write")
    command.add_argument("--tokens", type=int, default=600_000)
    command.add_argument("--seed", type=int, default=1)
    command.add_argument("--threads", type=int, default=1)
    arguments = command.parse_args()
    torch.set_num_threads(arguments.threads)
    keep_freed_memory()
    head = train(TextModel(_BUILTIN), tokens=arguments.tokens, seed=arguments.seed)
    tensors = {f"{name}.weight": head.weight(name) for name in _names(head)}
    write_head(arguments.path, head.shape, {name: each.detach().numpy() for name, each in tensors.items()})
    print(f"wrote {arguments.path}: {arguments.path.stat().st_size} bytes")


def _names(head: Head) -> list[str]:
    return [name.removesuffix(".weight") for name in head.shape.tensor_shapes()]


if __name__ == "__main__":
    main()
