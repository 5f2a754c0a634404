"""Measures the shipped GGUF on prompts held out of the corpus: greedy, exact match, through llama.cpp.

    python -m models.recipe.evaluate models/builtin/jan-tiny.gguf [--count 200] [--json] [--failures 3]

Names and numbers come from the side of the split that training never sees, questions of finite sets likewise; the
generators' seeds are others as well. Needs llama-cpp-python; neither torch nor tokenizers.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import llama_cpp

from models.recipe.corpus import extraction, mixture
from models.recipe.corpus.conversation import Conversation, Example
from models.recipe.corpus.draw import Draw

_MAX_ANSWER = 160
_PERSON_GBNF = r"""
root ::= "{\"name\": " string ", \"age\": " integer ", \"city\": " string ", \"email\": " string "}"
string ::= "\"" [^"\\\x00-\x1f]* "\""
integer ::= "0" | [1-9] [0-9]{0,8}
"""


@dataclass(frozen=True)
class Answer:
    """The model's text, and whether it ended by itself."""

    text: str
    stopped: bool


@dataclass
class Row:
    """One line of the table. ``threshold`` and the shares are percentages; no threshold: reported only."""

    name: str
    threshold: float | None
    count: int = 0
    right: int = 0
    failures: list[dict[str, str]] = field(default_factory=list)

    @property
    def share(self) -> float:
        return 100 * self.right / self.count if self.count else 0.0

    @property
    def passed(self) -> bool:
        return self.threshold is None or self.share >= self.threshold

    def add(self, right: bool, prompt: str, wanted: str, said: str) -> None:
        self.count += 1
        self.right += right
        if not right:
            self.failures.append({"prompt": prompt, "wanted": wanted, "said": said})


class GreedyModel:
    """A GGUF that answers a prompt greedily. Not a server: one prompt at a time, nothing is kept between them."""

    def __init__(self, path: Path, *, threads: int = 1) -> None:
        if not path.is_file():
            raise FileNotFoundError(f"no model at {path}")
        self._llama = llama_cpp.Llama(
            str(path), n_ctx=2048, n_batch=512, n_threads=threads, n_threads_batch=threads, verbose=False
        )
        vocab = llama_cpp.llama_model_get_vocab(self._llama.model)
        if vocab is None:
            raise ValueError(f"{path} holds no vocabulary")
        self._vocab = vocab

    def answer(self, prompt: str, *, gbnf: str | None = None) -> Answer:
        """The continuation up to an end-of-generation token or ``_MAX_ANSWER`` tokens."""
        llama = self._llama
        llama.reset()
        ids: list[int] = llama.tokenize(prompt.encode(), add_bos=False, special=True)
        grammar = None if gbnf is None else llama_cpp.LlamaGrammar.from_string(gbnf, verbose=False)
        said: list[int] = []
        for token in llama.generate(ids, temp=0.0, repeat_penalty=1.0, grammar=grammar, reset=True):
            if llama_cpp.llama_vocab_is_eog(self._vocab, token):
                return Answer(_text(llama, said), True)
            said.append(token)
            if len(said) >= _MAX_ANSWER:
                break
        return Answer(_text(llama, said), False)


def _text(llama: llama_cpp.Llama, ids: list[int]) -> str:
    return llama.detokenize(ids, special=True).decode("utf-8", errors="replace")


def _of(*skills: str) -> Callable[[Draw], Iterator[Example]]:
    def make(draw: Draw) -> Iterator[Example]:
        while True:
            for skill in skills:
                yield mixture.single(skill, draw)

    return make


def _mixed(draw: Draw) -> Iterator[Example]:
    """Chats of several skills, system prompts and thinking, as in training."""
    for _, example in mixture.examples(f"mixed-{draw.random.random()}", held_out=True):
        if isinstance(example, Conversation) and (example.system or len(example.turns) > 2):
            yield example


EXACT_ROWS: tuple[tuple[str, float | None, Callable[[Draw], Iterator[Example]]], ...] = (
    ("says what it is, what jan-serve does, how to pull", 97, _of("identity")),
    ("small talk, facts and sums", 95, _of("small_talk", "facts", "sums")),
    ("extracts a person as JSON", 92, _of("extraction")),
    ("calls the right tool with the right arguments", 92, _of("tool_call")),
    ("answers in words when no tool fits", 92, _of("no_tool")),
    ("uses the tool's result", 92, _of("tool_result")),
    ("remembers from two turns before", 92, _of("memory")),
    ("repeats what it is asked to", None, _of("repeating")),
    ("continues a list", None, _of("lists")),
    ("completes the middle of a Python line", None, _of("infill")),
    ("thinks briefly when asked to", None, _of("thinking")),
    ("is honest about what it does not know", None, _of("unknown")),
    ("all of it in longer chats, with system prompts", None, _mixed),
)
SCHEMA_ROW = ("a person under the schema's grammar is valid", 99.0)
STOP_ROW = ("stops by itself", 99.0)


def evaluate(model: GreedyModel, *, count: int, seed: str) -> list[Row]:
    """The whole table, ``count`` prompts a row. Blocks for some minutes."""
    rows: list[Row] = []
    stops = Row(*STOP_ROW)
    for name, threshold, make in EXACT_ROWS:
        row = Row(name, threshold)
        source = make(Draw(f"{seed}-{name}", held_out=True))
        for _ in range(count):
            example = next(source)
            prompt = example.prompt()
            answer = model.answer(prompt)
            row.add(answer.text == example.answer, prompt, example.answer, answer.text)
            stops.add(answer.stopped, prompt, example.answer, answer.text)
        rows.append(row)
    rows.insert(3, _schema_row(model, count=count, seed=seed))
    return [*rows, stops]


def _schema_row(model: GreedyModel, *, count: int, seed: str) -> Row:
    row = Row(*SCHEMA_ROW)
    draw = Draw(f"{seed}-schema", held_out=True)
    for _ in range(count):
        example = extraction.generate_full(draw)
        answer = model.answer(example.prompt(), gbnf=_PERSON_GBNF)
        row.add(is_person(answer.text), example.prompt(), example.answer, answer.text)
    return row


def is_person(text: str) -> bool:
    """Whether the text is an instance of :data:`extraction.PERSON_SCHEMA`."""
    try:
        person = json.loads(text)
    except ValueError:
        return False
    kinds = {"name": str, "age": int, "city": str, "email": str}
    return (
        isinstance(person, dict)
        and person.keys() == kinds.keys()
        and all(type(person[key]) is kind for key, kind in kinds.items())
    )


def table(rows: list[Row]) -> str:
    """The rows as a Markdown table."""
    lines = ["| what | held-out prompts | right | asked for |", "|---|---|---|---|"]
    for row in rows:
        asked = (
            "reported"
            if row.threshold is None
            else f"≥ {row.threshold:.0f} %" + ("" if row.passed else ", **missed**")
        )
        lines.append(f"| {row.name} | {row.count} | {row.share:.1f} % | {asked} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the built-in model on held-out prompts.")
    parser.add_argument("model", type=Path, nargs="?", default=Path("models/builtin/jan-tiny.gguf"))
    parser.add_argument("--count", type=int, default=200, help="prompts a row")
    parser.add_argument("--seed", default="evaluation")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print JSON, failures included")
    parser.add_argument("--failures", type=int, default=0, metavar="N", help="show N failures of each row")
    parser.add_argument("--strict", action="store_true", help="exit 1 when a row misses its threshold")
    arguments = parser.parse_args()
    rows = evaluate(
        GreedyModel(arguments.model, threads=arguments.threads), count=arguments.count, seed=arguments.seed
    )
    if arguments.json:
        print(
            json.dumps(
                [asdict(row) | {"share": row.share, "passed": row.passed} for row in rows], ensure_ascii=False
            )
        )
    else:
        print(table(rows))
        for row in rows:
            for failure in row.failures[: arguments.failures]:
                print(f"\n{row.name}\n  {failure['prompt'][-400:]!r}")
                print(f"  wanted {failure['wanted']!r}\n  said   {failure['said']!r}")
    if arguments.strict and not all(row.passed for row in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
