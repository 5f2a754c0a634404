"""GuidedExecutor over a small vocabulary and grammars that are lists of texts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest

from jan_serve.core.constraint import CompiledGrammar, Guide, ThoughtGuide, Trigger
from jan_serve.engine.constraint.grammar_executor import Floats, GrammarExecutor
from jan_serve.engine.constraint.guide import GuidedExecutor, GuideTools
from jan_serve.engine.constraint.token_tables import TokenSearch
from tests.unit.engine.greedy_vocab import GreedyVocab

PIECES = (
    "<end>", "a", "b", "c", " ", "\n", "<", ">", "<think>", "</think>", "</", "think", "k>", "k>\n", "<t", "hink>",
    "</think>\n", "</think>a", "<call>", "<call>a", "call", "call>", ">b", "</call>", "lead", "abc", "\n\n",
)  # fmt: skip
END = 0
VOCAB = GreedyVocab(PIECES[1:], {"eos": PIECES[END]}, eog=("eos",))
ANY = CompiledGrammar(lark="")


@dataclass
class Texts(GrammarExecutor):
    """A grammar that is a list of texts. It is complete when none goes on."""

    texts: tuple[str, ...]
    written: str = ""

    def allows(self, token: int) -> bool:
        if token == END:
            return self.written in self.texts
        return any(text.startswith(self.written + PIECES[token]) for text in self.texts)

    def mask(self, logits: Floats) -> Floats:
        allowed = np.array([self.allows(token) for token in range(len(PIECES))])
        return np.where(allowed, logits, np.float32(-np.inf))

    def accept(self, token: int) -> None:
        assert token == END or self.allows(token)
        self.written += "" if token == END else PIECES[token]

    def forced(self) -> list[int]:
        return []

    @property
    def is_complete(self) -> bool:
        going_on = [text for text in self.texts if text.startswith(self.written) and text != self.written]
        return self.written in self.texts and not going_on


def guided(guide: Guide, *texts: str, triggered: tuple[tuple[str, ...], ...] = ()) -> GuidedExecutor:
    search = TokenSearch([piece.encode() for piece in PIECES])
    grammar = None if guide.grammar is None else lambda: Texts(texts)
    triggers = tuple(partial(Texts, own) for own in triggered)
    return GuidedExecutor(guide, GuideTools(VOCAB, lambda: search, grammar, triggers))


def write(executor: GuidedExecutor, *pieces: str) -> None:
    for piece in pieces:
        token = PIECES.index(piece)
        assert executor.allows(token), piece
        executor.accept(token)


def allowed(executor: GuidedExecutor) -> set[str]:
    """The tokens that may come next, by `allows` and by `mask`, which must agree."""
    allowed_pieces = {piece for token, piece in enumerate(PIECES) if executor.allows(token)}
    masked = executor.mask(np.zeros(len(PIECES), np.float32))
    assert {piece for token, piece in enumerate(PIECES) if masked[token] == 0} == allowed_pieces
    return allowed_pieces


ALL = set(PIECES)
THOUGHT = ThoughtGuide(opens=("<think>",), closes=("</think>",))
OPEN = ThoughtGuide(opens=("<think>",), closes=("</think>",), is_open=True)


def test_a_grammar_may_be_preceded_by_a_thought() -> None:
    executor = guided(Guide(thought=THOUGHT, grammar=ANY), "ab")
    assert allowed(executor) == {"a", "<", "<think>", "<t"}
    write(executor, "<", "think", ">", "a", "c", "</think>")
    assert allowed(executor) == {"a"}
    write(executor, "a", "b")
    assert executor.is_complete
    assert executor.reasoning_tokens == 4


def test_what_begins_like_a_thought_may_be_what_the_grammar_wants() -> None:
    executor = guided(Guide(thought=THOUGHT, grammar=ANY), "<a")
    write(executor, "<", "a")
    assert executor.is_complete
    assert executor.reasoning_tokens == 0


def test_a_thought_under_a_grammar_must_be_closed_before_the_end() -> None:
    executor = guided(Guide(thought=OPEN, grammar=ANY), "ab")
    assert allowed(executor) == ALL - {"<end>", "</think>a"}
    write(executor, "a", "</", "think")
    assert ">b" not in allowed(executor)
    write(executor, ">")
    assert allowed(executor) == {"a"}


def test_what_ends_a_thought_without_closing_it_does_not_lead_past_the_grammar() -> None:
    ended = ThoughtGuide(opens=("<think>",), closes=("</think>",), ends=("<call>",), is_open=True)
    executor = guided(Guide(thought=ended, grammar=ANY), "ab")
    assert allowed(executor) == ALL - {"<end>", "</think>a", "<call>", "<call>a"}
    write(executor, "<", "call")
    assert {">", ">b"} & allowed(executor) == set()
    write(executor, "a", "</think>")
    assert allowed(executor) == {"a"}


@pytest.mark.parametrize(
    ("close", "forced"), [(["</think>"], ["\n\n", "lead"]), (["</think>\n"], ["\n", "lead"])], ids=str
)
def test_the_lead_behind_a_thought_repeats_no_white_space(close: list[str], forced: list[str]) -> None:
    executor = guided(Guide(thought=OPEN, lead="lead", lead_after_thought="\n\nlead", grammar=ANY), "ab")
    write(executor, *close)
    assert [PIECES[token] for token in executor.forced()] == forced
    assert allowed(executor) == {"a"}


def test_the_lead_comes_first_and_can_be_masked() -> None:
    executor = guided(Guide(lead="lead", grammar=ANY), "ab")
    assert allowed(executor) == {"lead"}
    write(executor, "lead")
    assert allowed(executor) == {"a"}
    assert [PIECES[t] for t in guided(Guide(lead="lead", grammar=ANY), "ab").forced()] == ["lead"]


def test_a_budget_closes_the_thought() -> None:
    guide = Guide(thought=ThoughtGuide(opens=("<think>",), closes=("</think>",), is_open=True, budget=2))
    executor = guided(guide)
    write(executor, "a")
    assert executor.forced() == []
    write(executor, "b")
    assert allowed(executor) == {"</think>"}
    assert [PIECES[token] for token in executor.forced()] == ["</think>"]
    assert allowed(executor) == ALL
    assert executor.reasoning_tokens == 3


def test_no_budget_closes_at_once() -> None:
    guide = Guide(thought=ThoughtGuide(opens=("<think>",), closes=("</think>",), is_open=True, budget=0))
    assert [PIECES[token] for token in guided(guide).forced()] == ["</think>"]
    late = guided(Guide(thought=ThoughtGuide(opens=("<think>",), closes=("</think>",), budget=0)))
    write(late, "<think>")
    assert [PIECES[token] for token in late.forced()] == ["</think>"]


CALL = Guide(triggers=(Trigger("<call>", ANY),))
CALLS = (("abc</call>",),)


@pytest.mark.parametrize(
    "pieces", [["<call>"], ["<", "call", ">"], ["a", " ", "<", "call>"], ["<call>a"]], ids=str
)
def test_free_text_comes_to_a_trigger(pieces: list[str]) -> None:
    executor = guided(CALL, triggered=CALLS)
    assert allowed(executor) == ALL
    write(executor, *pieces)
    assert allowed(executor) == ({"b"} if pieces == ["<call>a"] else {"a", "abc"})
    assert not executor.is_complete


def test_text_behind_a_trigger_in_its_token_obeys_the_grammar() -> None:
    executor = guided(CALL, triggered=((("b</call>"),),))
    assert allowed(executor) == ALL - {"<call>a"}
    write(executor, "<", "call")
    write(executor, ">b")
    assert allowed(executor) == {"<", "</", "</call>"}


def test_a_trigger_that_needs_a_confirmation_is_text_until_it_comes() -> None:
    guide = Guide(triggers=(Trigger("<call>", ANY, ("ab", "b")),))
    executor = guided(guide, triggered=(("abc", "b\n"),))
    write(executor, "<call>")
    assert allowed(executor) == ALL
    write(executor, "a", "c", "<", "call>", "a")
    assert allowed(executor) == ALL
    write(executor, "b")
    assert allowed(executor) == {"c"}


def test_text_is_free_again_behind_a_call() -> None:
    executor = guided(CALL, triggered=CALLS)
    write(executor, "<call>", "abc", "</call>")
    assert not executor.is_complete
    assert allowed(executor) == ALL
    write(executor, "<call>")
    assert allowed(executor) == {"a", "abc"}


def test_one_call_ends_the_answer_where_there_may_be_one() -> None:
    executor = guided(Guide(triggers=CALL.triggers, repeat=False), triggered=CALLS)
    write(executor, "<call>", "abc", "</call>")
    assert executor.is_complete


def test_a_trigger_that_counts_at_the_start_only() -> None:
    guide = Guide(triggers=CALL.triggers, at_start=True)
    executor = guided(guide, triggered=CALLS)
    write(executor, " ", "<call>")
    assert allowed(executor) == {"a", "abc"}
    late = guided(guide, triggered=CALLS)
    write(late, "a", "<call>")
    assert allowed(late) == ALL


def test_a_trigger_inside_of_a_thought_is_part_of_it() -> None:
    executor = guided(Guide(thought=THOUGHT, triggers=CALL.triggers), triggered=CALLS)
    write(executor, "<think>", "<call>", "b")
    assert executor.reasoning_tokens == 3
    write(executor, "</think>", "\n\n", "<call>")
    assert allowed(executor) == {"a", "abc"}


def test_a_trigger_may_end_a_thought() -> None:
    thought = ThoughtGuide(opens=("<think>",), closes=("</think>",), ends=("<call>",), is_open=True)
    executor = guided(Guide(thought=thought, triggers=CALL.triggers), triggered=CALLS)
    write(executor, "b", "<call>")
    assert allowed(executor) == {"a", "abc"}


def test_thoughts_come_first_or_anywhere() -> None:
    first = guided(Guide(thought=THOUGHT))
    write(first, "a", "<think>", "b")
    assert first.reasoning_tokens == 0
    anywhere = guided(Guide(thought=ThoughtGuide(opens=("<think>",), closes=("</think>",), anywhere=True)))
    write(anywhere, "a", "<think>", "b", "</think>", "c")
    assert anywhere.reasoning_tokens == 3
