"""How many tokens masks get wrong: `python -m tests.conformance.mask_counts VOCABULARY.gguf ... [--count N]`. At
positions of valid instances of MaskBench's schemas, each token of a vocabulary is judged: a mask forbids it although a
text goes on with it, or allows it although none does. The grammar's own tree is the oracle (`mask_oracle.py`), and
jsonschema judges texts that begin with some of the tokens, since names and items that must differ stand beside the
tree. Texts are cut into the tokens of the vocabulary, and often into smaller ones. Forced text asks for no mask. With
`--peer`, a mask of another engine and ours are judged alike: nothing may be forbidden that a text goes on with as
`json.dumps` writes it, with the properties in order and without needless escapes, but for U+007F; and nothing may be
allowed that no text goes on with on one line, in any order and any spelling. Formats are annotations there, and names
may repeat. XGrammar has to be installed beside this; it is no dependency."""

from __future__ import annotations

import argparse
import importlib
import json
import random
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, cast

import llguidance
import numpy as np

from jan_serve.constraint.ast import Grammar, Mode
from jan_serve.constraint.enforce import enforce
from jan_serve.constraint.json_schema.document import Document
from jan_serve.constraint.json_schema.expand import Expander
from jan_serve.constraint.json_schema.ir import TRUE, placed
from jan_serve.constraint.json_schema.translate import Emitter
from jan_serve.constraint.layout import LAYOUTS, SPACED, Layout
from jan_serve.constraint.limits import budget
from jan_serve.constraint.rules import prune
from jan_serve.constraint.text_form import EverySpelling, OneSpelling
from jan_serve.core.constraint import JsonSchemaConstraint, PropertyOrder, Whitespace
from jan_serve.engine.constraint.grammar_executor import GrammarExecutor
from jan_serve.engine.constraint.grammar_factory import STACK_BYTES, GrammarFactory
from jan_serve.engine.llama.model import LlamaModel
from jan_serve.engine.llama.vocab import Vocab
from jan_serve.errors import JanServeError
from tests.conformance.generations import is_right
from tests.conformance.mask_oracle import DEAD, START, Bools, ByteStates, Continuations, Trie
from tests.conformance.suites import SHARED, Case, load_suite

_DELETE: Final = b"\x7f"
"""May stand in strings of JSON, and some engines want an escape."""
_TRIED: Final = 200
"""Texts that are written to find a valid one."""
_SMALLER: Final = 0.3
"""How often a token is not the one of the vocabulary's own cut."""


class Vocabulary:
    """The tokens of a GGUF file, for masks and for the oracle."""

    def __init__(self, vocab: Vocab) -> None:
        self.vocab = vocab
        self.factory = GrammarFactory(vocab)
        while not self.factory.tables.complete:
            self.factory.tables.advance()
        self.pieces = self.factory.tables.pieces()
        controls = filter(vocab.is_control, range(vocab.n_tokens))
        self.trie = Trie(self.pieces, (*controls, *vocab.eog_ids))

    def next_token(self, rest: bytes, draw: random.Random) -> int:
        """One that `rest` begins with."""
        if draw.random() < _SMALLER:
            return draw.choice(self.factory.tables.search().beginning_of(rest))
        text = rest.decode("utf-8", "replace")
        token = self.vocab.tokenize_inside(text, parse_special=False)[0]
        fits = self.pieces[token] and rest.startswith(self.pieces[token])
        return token if fits else self.factory.tables.search().beginning_of(rest)[-1]


class Masks(Protocol):
    """An engine within a text."""

    def forced(self) -> list[int]:
        """Go past the tokens that must come next."""
        ...

    def allowed(self) -> Bools: ...

    def ends(self) -> bool:
        """Whether the text may end here."""
        ...

    def accept(self, token: int) -> bool: ...


class Ours:
    def __init__(self, executor: GrammarExecutor, vocab: Vocab) -> None:
        self._executor = executor
        self._eog = list(vocab.eog_ids)
        self._logits = np.zeros(vocab.n_tokens, np.float32)
        self._ends = False

    def forced(self) -> list[int]:
        return self._executor.forced()

    def allowed(self) -> Bools:
        mask = self._executor.mask(self._logits) > -np.inf
        self._ends = bool(mask[self._eog].all())
        mask[self._eog] = False
        return mask

    def ends(self) -> bool:
        return self._ends

    def accept(self, token: int) -> bool:
        if not self._executor.allows(token):
            return False
        self._executor.accept(token)
        return True


class LlguidanceJson:
    """llguidance's own translation of JSON Schema. Raises ValueError where it refuses one."""

    _LAYOUT: Final[Any] = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}

    def __init__(self, schema: Any, vocabulary: Vocabulary) -> None:
        grammar = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides=self._LAYOUT)
        self._matcher = llguidance.LLMatcher(vocabulary.factory.tables.tokenizer(), grammar, log_level=0)
        if self._matcher.is_error():
            raise ValueError(self._matcher.get_error())
        self._vocab = vocabulary.vocab

    def forced(self) -> list[int]:
        tokens = [token for token in self._matcher.compute_ff_tokens() if not self._vocab.is_eog(token)]
        return tokens if all(map(self.accept, tokens)) else []

    def allowed(self) -> Bools:
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        mask = np.unpackbits(bits, bitorder="little")[: self._vocab.n_tokens].astype(np.bool_)
        mask[list(self._vocab.eog_ids)] = False
        return mask

    def ends(self) -> bool:
        return bool(self._matcher.is_accepting())

    def accept(self, token: int) -> bool:
        return bool(self._matcher.consume_token(token))


class XGrammar:
    """Raises RuntimeError where it refuses a schema."""

    _compilers: Final[dict[int, Any]] = {}

    def __init__(self, schema: Any, vocabulary: Vocabulary) -> None:
        xgrammar: Any = importlib.import_module("xgrammar")

        vocab = vocabulary.vocab
        compiler = self._compilers.get(id(vocabulary))
        if compiler is None:
            pieces = [b"" if vocab.is_control(t) else piece for t, piece in enumerate(vocabulary.pieces)]
            info = xgrammar.TokenizerInfo(pieces, vocab_size=vocab.n_tokens, stop_token_ids=[*vocab.eog_ids])
            compiler = self._compilers[id(vocabulary)] = xgrammar.GrammarCompiler(info, max_threads=1)
        compiled = compiler.compile_json_schema(
            json.dumps(schema), any_whitespace=False, separators=(", ", ": "), strict_mode=False
        )
        self._matcher = xgrammar.GrammarMatcher(compiled)
        self._bits: Any = xgrammar.allocate_token_bitmask(1, vocab.n_tokens)
        self._vocab = vocab

    def forced(self) -> list[int]:
        return []

    def allowed(self) -> Bools:
        self._bits.fill_(-1)
        self._matcher.fill_next_token_bitmask(self._bits)
        mask = np.unpackbits(self._bits.numpy().view(np.uint8), bitorder="little")
        mask = mask[: self._vocab.n_tokens].astype(np.bool_)
        mask[list(self._vocab.eog_ids)] = False
        return mask

    def ends(self) -> bool:
        return bool(self._matcher.is_completed())

    def accept(self, token: int) -> bool:
        return bool(self._matcher.accept_token(token))


PEERS: Final[dict[str, Callable[[Any, Vocabulary], Masks]]] = {
    "llguidance": LlguidanceJson,
    "xgrammar": XGrammar,
}


class Found(NamedTuple):
    """What is judged at one position. forbidden, allowed: the tokens that a mask gets wrong."""

    text: bytes
    forbidden: list[bytes]
    allowed: list[bytes]


class Oracle(Protocol):
    def go(self, data: bytes) -> bool:
        """Past the next bytes; whether they are a beginning that is judged here."""
        ...

    def wrong(self, mask: Bools, ends: bool) -> tuple[Bools, Bools]:
        """What the mask forbids and allows wrongly."""
        ...


class OwnTree:
    """Judges by the tree of the grammar that runs, and by jsonschema what is compared beside it."""

    def __init__(
        self, schema: Any, grammar: Grammar, trie: Trie, pieces: list[bytes], draw: random.Random
    ) -> None:
        self.grammar = grammar
        self._schema, self._trie, self._pieces, self._draw = schema, trie, pieces, draw
        self._states = ByteStates(grammar)
        self._texts = Continuations(grammar, self._states)
        self._at = START
        self._text = b""

    def go(self, data: bytes) -> bool:
        self._at = self._states.after(self._at, data)
        self._text += data
        return self._at != DEAD

    def wrong(self, mask: Bools, ends: bool) -> tuple[Bools, Bools]:
        tree = self._states.allowed(self._at, self._trie)
        forbidden, allowed = tree & ~mask, mask & ~tree
        for token in np.flatnonzero(forbidden):
            forbidden[token] = self._has_valid(int(token))
        both = np.flatnonzero(mask & tree)
        for token in self._draw.sample(both.tolist(), min(2, len(both))):
            allowed[token] = not self._has_valid(token)
        if ends != self._states.is_end(self._at):
            (forbidden if ends else allowed)[0] = True
        return forbidden, allowed

    def _has_valid(self, token: int) -> bool:
        """Whether jsonschema calls some text valid that goes on with the token."""
        after = self._states.after(self._at, self._pieces[token])
        for number in range(_TRIED):
            end = self._texts.text(after, self._draw, shortest=number % 2 == 0)
            begun = self._states.content(after)[1]
            written = self._text + self._pieces[token]
            text = written[: len(written) - len(begun)].decode("utf-8") + end
            if is_right(self._schema, text):
                return True
        return False


class CommonTrees:
    """Judges the masks of any engine, by what all have to take and what all have to refuse."""

    def __init__(self, schema: Any, vocabulary: Vocabulary, layouts: tuple[Layout, ...]) -> None:
        """layouts: that an engine may write."""
        self._trie = vocabulary.trie
        self._has_no_delete = np.array([_DELETE not in piece for piece in vocabulary.pieces])
        self._least = ByteStates(_tree(schema, PropertyOrder.SCHEMA, OneSpelling), (SPACED,))
        self._most = ByteStates(_tree(_without_formats(schema), PropertyOrder.ANY, EverySpelling), layouts)
        self._at = (START, START)

    def go(self, data: bytes) -> bool:
        least, most = self._at
        self._at = self._least.after(least, data), self._most.after(most, data)
        return DEAD not in self._at

    def wrong(self, mask: Bools, ends: bool) -> tuple[Bools, Bools]:
        least, most = self._at
        needed = self._least.allowed(least, self._trie) & self._has_no_delete
        return needed & ~mask, mask & ~self._most.allowed(most, self._trie)


def _tree(schema: Any, order: PropertyOrder, spelling: type[OneSpelling | EverySpelling]) -> Grammar:
    with budget(), placed(TRUE):
        expander = Expander(Document(schema))
        emitter = Emitter(expander, whitespace=Whitespace.CONSISTENT, mode=Mode.IN_RULES, order=order)
        emitter.text = emitter.name_text = spelling(emitter.rules)
        grammar = prune(emitter.grammar(expander.terms.positive(Document(schema).root)))
    assert grammar is not None
    return grammar


def _without_formats(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_formats(item) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _without_formats(own)
        for key, own in cast("dict[str, Any]", schema).items()
        if not (key == "format" and isinstance(own, str))
    }


def positions(
    vocabulary: Vocabulary, masks: Masks, oracle: Oracle, text: bytes, most: int, draw: random.Random
) -> Iterator[Found | None]:
    """What is found where a mask is asked for, in a text that both take; None at the end if it is taken up to there."""
    rest = text
    while True:
        for token in masks.forced():
            piece = vocabulary.pieces[token]
            if not rest.startswith(piece) or not oracle.go(piece):
                return
            rest = rest[len(piece) :]
        if not rest or most <= 0:
            yield None
            return
        most -= 1
        mask = masks.allowed()
        forbidden, allowed = oracle.wrong(mask, masks.ends())
        pieces = vocabulary.pieces
        yield Found(
            text[: len(text) - len(rest)],
            [pieces[token] for token in np.flatnonzero(forbidden)],
            [pieces[token] for token in np.flatnonzero(allowed)],
        )
        token = vocabulary.next_token(rest, draw)
        if not mask[token] or not masks.accept(token) or not oracle.go(pieces[token]):
            return
        rest = rest[len(pieces[token]) :]


class Counts(NamedTuple):
    """schemas: that are served. wrong_schemas: with a wrong token somewhere."""

    schemas: int
    refused: int
    positions: int
    tokens: int
    forbidden: int
    allowed: int
    wrong_schemas: int

    def row(self, name: str) -> str:
        cells = (self.schemas, self.refused, self.positions, self.tokens, self.forbidden, self.allowed)
        return f"| {name} | {' | '.join(f'{cell:,}' for cell in (*cells, self.wrong_schemas))} |\n"


HEAD: Final = (
    "| masks | schemas | refused | positions | tokens judged | forbidden, though a text goes on | allowed, though none"
    " does | schemas with one |\n|---|---|---|---|---|---|---|---|\n"
)


def counted(
    vocabulary: Vocabulary,
    cases: list[Case],
    start: Callable[[Case, random.Random], tuple[Masks, Oracle]],
    most: int,
    shown: int,
) -> Counts:
    """Counts of one engine, over the first valid instances of the cases. shown: wrong positions to print."""
    count: Counter[str] = Counter()
    for case in cases:
        draw = random.Random(case.name)
        is_wrong = False
        for instance in [instance for instance, valid in case.instances if valid][:1]:
            try:
                masks, oracle = start(case, draw)
            except (JanServeError, ValueError, RuntimeError):
                count["refused"] += 1
                break
            count["schemas"] += 1
            text = json.dumps(instance, ensure_ascii=False).encode()
            for found in positions(vocabulary, masks, oracle, text, most, draw):
                if found is None:
                    continue
                count["positions"] += 1
                count["forbidden"] += len(found.forbidden)
                count["allowed"] += len(found.allowed)
                if found.forbidden or found.allowed:
                    is_wrong = True
                    if shown > 0:
                        shown -= 1
                        sys.stdout.write(
                            f"    {case.name}: after {found.text[-60:]!r} forbidden {found.forbidden[:4]}"
                            f" allowed {found.allowed[:4]}\n"
                        )
        count["wrong"] += is_wrong
    judged = count["positions"] * int(vocabulary.trie.is_token.sum())
    return Counts(
        count["schemas"],
        count["refused"],
        count["positions"],
        judged,
        count["forbidden"],
        count["allowed"],
        count["wrong"],
    )


def own(
    vocabulary: Vocabulary, order: PropertyOrder
) -> Callable[[Case, random.Random], tuple[Masks, OwnTree]]:
    """Our masks, judged by their own tree."""

    def start(case: Case, draw: random.Random) -> tuple[Masks, OwnTree]:
        enforced = enforce(JsonSchemaConstraint(case.schema, None, order))
        executor = vocabulary.factory.create(enforced.compiled)
        oracle = OwnTree(case.schema, enforced.grammar, vocabulary.trie, vocabulary.pieces, draw)
        return Ours(executor, vocabulary.vocab), oracle

    return start


def common(vocabulary: Vocabulary, peer: str | None) -> Callable[[Case, random.Random], tuple[Masks, Oracle]]:
    """The masks of a peer, or ours, judged alike."""

    def start(case: Case, draw: random.Random) -> tuple[Masks, Oracle]:
        oracle = CommonTrees(case.schema, vocabulary, LAYOUTS if peer is None else (SPACED,))
        if peer is not None:
            return PEERS[peer](case.schema, vocabulary), oracle
        compiled = enforce(JsonSchemaConstraint(case.schema)).compiled
        return Ours(vocabulary.factory.create(compiled), vocabulary.vocab), oracle

    return start


def report(options: argparse.Namespace) -> None:
    cases = load_suite("maskbench")
    random.Random(58).shuffle(cases)
    for path in options.vocabularies:
        vocabulary = Vocabulary(LlamaModel(str(path), vocab_only=True).vocab)
        sys.stdout.write(f"\n{vocabulary.vocab.n_tokens:,} tokens\n\n{HEAD}")
        for order in (PropertyOrder.SCHEMA, PropertyOrder.ANY):
            found = counted(
                vocabulary, cases[: options.count], own(vocabulary, order), options.positions, options.shown
            )
            sys.stdout.write(found.row(f"ours, order {order.value}, by their own tree"))
            sys.stdout.flush()
        for peer in [None, *options.peer] if options.peer else []:
            found = counted(
                vocabulary, cases[: options.count], common(vocabulary, peer), options.positions, options.shown
            )
            sys.stdout.write(found.row(peer or "ours"))
            sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("vocabularies", nargs="+", type=Path, metavar="VOCABULARY", help="GGUF files")
    parser.add_argument("--count", type=int, default=200, help="schemas of MaskBench")
    parser.add_argument("--positions", type=int, default=40, help="of each instance, at most")
    parser.add_argument("--peer", action="append", choices=PEERS, default=[], help="judged beside ours")
    parser.add_argument("--shown", type=int, default=0, help="wrong positions to print for each row")
    options = parser.parse_args()
    if not SHARED.is_dir():
        sys.stdout.write(f"the reference folder {SHARED.name} is not beside the repository: nothing to run\n")
        return 0
    threading.stack_size(STACK_BYTES)
    thread = threading.Thread(target=report, args=(options,))
    thread.start()
    thread.join()
    return 0


if __name__ == "__main__":
    sys.exit(main())
