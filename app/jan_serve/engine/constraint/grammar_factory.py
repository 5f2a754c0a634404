"""GrammarFactory makes the grammar executors of one model; `check_lark` limits the Lark texts that they get.
llguidance is native code: a stack overflow kills the worker. It compiles a rule or terminal at its first reference,
and recurses for each reference and each group. Measured (llguidance 1.8): 3.3 KB of stack per reference, up to 4.8 KB
with groups."""

from __future__ import annotations

from collections import OrderedDict
from functools import cached_property
from hashlib import sha256
from itertools import accumulate
from typing import Final

import msgspec

from jan_serve.core.constraint import CompiledGrammar, Guide, SpecialText
from jan_serve.engine.constraint.grammar_executor import CountingExecutor, GrammarExecutor, TokenSizes
from jan_serve.engine.constraint.guide import GuidedExecutor, GuideTools
from jan_serve.engine.constraint.token_tables import EarlyTables, TokenTables
from jan_serve.engine.constraint.uniqueness_executor import Tokens, UniquenessExecutor
from jan_serve.engine.llama.vocab import Vocab
from jan_serve.errors import GrammarTooComplex
from jan_serve.text.lark_text import GROUPS, PIECES, depths, named_in

MAX_DEPTH: Final = 2_000
MAX_LITERAL: Final = 100_000
"""Characters of one string. Forced text is tokenised in one go, up to 9 µs a token, while all other sequences wait."""
STACK_BYTES: Final = 32 << 20
"""Stack of the compiling thread: three times the need of MAX_DEPTH, whatever the platform's default."""


def check_lark(lark: str) -> None:
    """Raises GrammarTooComplex. Linear in the length. Expects one definition per line, as our printer writes them."""
    if len(lark) <= MAX_LITERAL and lark.count("\n") + lark.count("(") + lark.count("[") < MAX_DEPTH:
        return  # a path has each definition once, with the groups around one of its references
    parts = (line.partition(":") for line in lark.splitlines())
    bodies = {head.rstrip().partition(".")[0]: body for head, colon, body in parts if colon}
    most: dict[str, int] = {}

    def uses(name: str) -> list[tuple[str, int]]:
        body = bodies.get(name, "")
        pieces: list[str] = PIECES.findall(body)
        if len(body) > MAX_LITERAL and max(map(len, pieces), default=0) > MAX_LITERAL:
            raise GrammarTooComplex(
                f"the grammar has a text of more than {MAX_LITERAL} characters", param="grammar"
            )
        most[name] = max(accumulate(GROUPS.get(piece, 0) for piece in pieces), default=0)
        return named_in(pieces, bodies)

    if any(depth + most[name] > MAX_DEPTH for name, depth in depths(uses, "start")):
        raise GrammarTooComplex(
            f"the rules of the grammar refer to one another deeper than {MAX_DEPTH} levels", param="grammar"
        )


_MAX_KEPT: Final = 16
_MAX_KEPT_CHARACTERS: Final = 4 << 20


class GrammarFactory:
    """Makes executors for one model. One thread. Keeps the executors of recent grammars: an agent sends the same tools
    with each request, and those of some formats take half a second to compile."""

    def __init__(self, vocab: Vocab, early: EarlyTables | None = None) -> None:
        self._vocab = vocab
        self.tables = TokenTables(vocab, early)
        self._kept: OrderedDict[str, GrammarExecutor] = OrderedDict()
        """Executors at their start by Lark text and a hash of what stands beside it, the least recently used first.
        Only the calling thread uses them."""

    def create(self, grammar: CompiledGrammar) -> GrammarExecutor:
        """An executor at the start of the grammar. Raises InvalidGrammar, GrammarTooComplex. The calling thread needs
        STACK_BYTES of stack."""
        lark = self._with_specials(grammar)
        beside = (own for own in (grammar.uniqueness, grammar.bounds) if own is not None)
        key = lark + "".join(sha256(msgspec.msgpack.encode(own)).hexdigest() for own in beside)
        kept = self._kept.get(key)
        if kept is None:
            check_lark(lark)
            kept = self._made(lark, grammar)
            if not self.tables.complete:  # its masks take longer than those of the next one
                return kept
            self._kept[key] = kept
            self._forget_old()
        self._kept.move_to_end(key)
        return kept.copy()

    def _made(self, lark: str, grammar: CompiledGrammar) -> GrammarExecutor:
        tokenizer = self.tables.tokenizer()
        if grammar.uniqueness is not None:
            return UniquenessExecutor(
                tokenizer, lark, self._vocab, grammar.uniqueness, lambda: self._unique_tokens
            )
        if grammar.bounds is not None:
            return CountingExecutor(tokenizer, lark, self._vocab, grammar.bounds, lambda: self._token_sizes)
        return GrammarExecutor(tokenizer, lark, self._vocab)

    @cached_property
    def _unique_tokens(self) -> Tokens:
        return Tokens(self.tables.pieces(), self.tables.search)

    @cached_property
    def _token_sizes(self) -> TokenSizes:
        return TokenSizes(self.tables.pieces(), self.tables.search())

    def _forget_old(self) -> None:
        """The newest stays, whatever its size."""
        while len(self._kept) > 1 and (
            len(self._kept) > _MAX_KEPT or sum(map(len, self._kept)) > _MAX_KEPT_CHARACTERS
        ):
            self._kept.popitem(last=False)

    def guided(self, guide: Guide) -> GuidedExecutor:
        """An executor at the start of an answer. Compiles every grammar of the guide now. Raises as `create`."""
        grammar = None if guide.grammar is None else self.create(guide.grammar).copy
        triggers = tuple(self.create(trigger.grammar).copy for trigger in guide.triggers)
        return GuidedExecutor(guide, GuideTools(self._vocab, self.tables.search, grammar, triggers))

    def _with_specials(self, grammar: CompiledGrammar) -> str:
        """Its Lark text with the rules of its control tokens. An EOG token becomes empty: the sequence ends with the
        grammar."""
        rules = (f"{special.rule}: {self._body(special)}\n" for special in grammar.specials)
        return grammar.lark + "".join(rules)

    def _body(self, special: SpecialText) -> str:
        token = self._vocab.control_token(special.text)
        if token is None or (special.with_token and self._vocab.is_eog(token)):
            return special.spelled
        if special.with_token:
            return special.with_token
        return '""' if self._vocab.is_eog(token) else f"<[{token}]>"
