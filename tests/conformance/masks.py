"""How long masks take: `python -m tests.conformance.masks MODEL.gguf [--count N]`. Eight sequences at a time write
valid instances of MaskBench's schemas in turn, as a batch does. As in a server, text that the grammar forces needs no
mask; but every other token asks for one here, and in a server only where the grammar rejects the token that was drawn
first."""

from __future__ import annotations

import argparse
import json
import random
import sys
import threading
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from jan_serve.constraint.enforce import enforce
from jan_serve.core.constraint import JsonSchemaConstraint, PropertyOrder
from jan_serve.engine.constraint.grammar_executor import GrammarExecutor
from jan_serve.engine.constraint.grammar_factory import STACK_BYTES, GrammarFactory
from jan_serve.engine.llama.model import LlamaModel
from jan_serve.engine.llama.vocab import Vocab
from jan_serve.errors import JanServeError
from tests.conformance.suites import SHARED, load_suite

AT_ONCE = 8


class Text:
    """A valid instance that is being written under its schema."""

    def __init__(self, executor: GrammarExecutor, vocab: Vocab, text: str) -> None:
        self._vocab = vocab
        self._text = text.encode()
        self._tokens: list[int] = []
        self.executor = executor

    def next_token(self) -> int | None:
        """Past what is forced; None at the end. Raises ValueError where the grammar takes another text."""
        for token in self.executor.forced():
            self._tokens.clear()
            self._skip(token)
        if self._text and not self._tokens:
            rest = self._text.decode("utf-8", "replace")
            self._tokens = self._vocab.tokenize(rest, add_special=False, parse_special=False)[::-1]
        return self._tokens.pop() if self._text else None

    def write(self, token: int) -> None:
        """Raises ValueError as `next_token`."""
        if not self.executor.allows(token):
            raise ValueError("the grammar rejects the next token")
        self.executor.accept(token)
        self._skip(token)

    def _skip(self, token: int) -> None:
        piece = self._vocab.piece(token, special=False)
        if not self._text.startswith(piece):
            raise ValueError("the grammar forces another text")
        self._text = self._text[len(piece) :]


def texts(factory: GrammarFactory, vocab: Vocab, count: int, order: PropertyOrder) -> Iterator[Text]:
    """Texts of `count` schemas, before their first token."""
    cases = load_suite("maskbench")
    random.Random(300).shuffle(cases)
    for case in cases[:count]:
        valid = [instance for instance, is_valid in case.instances if is_valid]
        try:
            executor = factory.create(enforce(JsonSchemaConstraint(case.schema, None, order)).compiled)
        except JanServeError:
            continue
        if valid:
            yield Text(executor, vocab, json.dumps(valid[0], ensure_ascii=False))


def measure(path: Path, count: int, order: PropertyOrder) -> None:
    """Print percentiles of the CPU time of masks and of steps of eight."""
    vocab = LlamaModel(str(path), vocab_only=True).vocab
    factory = GrammarFactory(vocab)
    while not factory.tables.complete:
        factory.tables.advance()
    logits = np.zeros(vocab.n_tokens, np.float32)
    masks: list[float] = []
    steps: list[float] = []
    waiting = texts(factory, vocab, count, order)
    batch = list(islice(waiting, AT_ONCE))
    while len(batch) == AT_ONCE:
        step = 0.0
        for text in tuple(batch):
            try:
                token = text.next_token()
                if token is not None:
                    started = time.thread_time()
                    text.executor.mask(logits)
                    masks.append(1e3 * (time.thread_time() - started))
                    step += masks[-1]
                    text.write(token)
                    continue
            except ValueError:
                pass  # names in another order: the report counts them
            batch.remove(text)
            batch += islice(waiting, 1)
        steps.append(step)
    for name, times in (("masks", masks), (f"steps of {AT_ONCE}", steps)):
        shares = " ".join(f"p{share} {np.percentile(times, share):.3f}" for share in (50, 90, 99, 99.9))
        sys.stdout.write(f"{vocab.n_tokens} tokens, {len(times)} {name}: ms {shares} max {max(times):.1f}\n")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path, help="GGUF file with the vocabulary")
    parser.add_argument("--count", type=int, default=200, help="schemas of MaskBench")
    parser.add_argument(
        "--property-order", choices=[order.value for order in PropertyOrder], default="schema"
    )
    options = parser.parse_args()
    if not SHARED.is_dir():
        sys.stdout.write(f"the reference folder {SHARED.name} is not beside the repository: nothing to run\n")
        return 0
    threading.stack_size(STACK_BYTES)
    thread = threading.Thread(
        target=measure, args=(options.model, options.count, PropertyOrder(options.property_order))
    )
    thread.start()
    thread.join()
    return 0


if __name__ == "__main__":
    sys.exit(main())
