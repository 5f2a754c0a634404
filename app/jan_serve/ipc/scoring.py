"""Queries, which have one answer: those that embed inputs, and score documents and options."""

from __future__ import annotations

import math
from functools import cache
from typing import Any, Generic, TypeVar, get_args

import msgspec

A = TypeVar("A")


class Query(msgspec.Struct, Generic[A], frozen=True, kw_only=True):
    """A request that is answered by an A, or by Failed. id: 0 lets the client of the worker choose it.

    client: whose request it is; see core.caller. background: it is computed while no other request can be.
    """

    id: int = 0
    client: str = ""
    background: bool = False


@cache
def answer_type(kind: type[Query[Any]]) -> Any:
    """What a kind of query is answered by: a class, or a union of classes."""
    return get_args(vars(kind)["__orig_bases__"][0])[0]


class AdapterUse(msgspec.Struct, frozen=True, order=True, array_like=True):
    """An adapter by its index in EngineSettings.adapters. scale: not 0."""

    index: int
    scale: float


class Embedded(msgspec.Struct, frozen=True, kw_only=True, tag="embedded"):
    """One vector per input: little-endian float32, `dimensions` each (rank pooling: scores)."""

    id: int
    vectors: tuple[bytes, ...]
    dimensions: int
    prompt_tokens: int


class EmbedRequest(Query[Embedded], frozen=True, kw_only=True, tag="embed"):
    """Embed each input. normalize: L2, over the last axis.

    parse_special: parse special tokens in texts.
    """

    inputs: tuple[str | tuple[int, ...], ...]
    normalize: bool = True
    adapters: tuple[AdapterUse, ...] = ()
    parse_special: bool = False


class OptionWeights(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to one question.

    log_masses: by option, the logarithm of the probability that the model writes it, and no longer option that begins
    with it; -inf for none. tokenisations: how many ways to write an option were added up. is_exact: whether all were;
    otherwise log_masses are those of the vocabulary's own tokenisation.
    """

    log_masses: tuple[float, ...]
    tokenisations: tuple[int, ...]
    is_exact: bool

    @property
    def mass(self) -> float:
        """The probability that the answer is any of the options."""
        return min(1.0, math.fsum(map(math.exp, self.log_masses)))

    def shares(self, temperature: float = 1.0) -> tuple[float, ...]:
        """The probabilities among the options, which sum to 1. temperature: above 1 they are less sure."""
        logs = [value / temperature for value in self.log_masses]
        highest = max(logs)
        if highest == -math.inf:
            return (1.0 / len(logs),) * len(logs)
        weights = [math.exp(value - highest) for value in logs]
        total = math.fsum(weights)
        return tuple(weight / total for weight in weights)


class OptionsWeighed(msgspec.Struct, frozen=True, kw_only=True, tag="weighed"):
    """Answers in the order of the questions. prompt_tokens: of all prompts, the shared prefix once.

    cached_tokens: how many of them were cached.
    """

    id: int
    answers: tuple[OptionWeights, ...]
    prompt_tokens: int
    cached_tokens: int


class RankRequest(Query[Embedded | OptionsWeighed], frozen=True, kw_only=True, tag="rank"):
    """Score each document for the query. The answer is Embedded (the outputs of a scoring head) or OptionsWeighed (one
    answer a document, of a model that writes one of `labels`).

    template: the text of a pair with {query} and {document}, whose special tokens are parsed; None: the separators of
    the vocabulary. labels: for models without a scoring head. max_document_tokens: documents are cut to these.
    truncate: documents are cut to what fits the context, instead of refused.
    """

    query: str
    documents: tuple[str, ...]
    template: str | None = None
    labels: tuple[str, ...] = ()
    max_document_tokens: int | None = None
    truncate: bool = False


class OptionQuestion(msgspec.Struct, frozen=True):
    """What follows the shared prompt, and the texts that may follow it. Options are not empty and differ."""

    prompt: tuple[str | tuple[int, ...], ...]
    options: tuple[str, ...]


class WeighOptions(Query[OptionsWeighed], frozen=True, kw_only=True, tag="weigh"):
    """The probability of each option after `shared` and the prompt of its question. Texts of prompts are tokenised
    piece by piece, special tokens parsed; ids are used unchanged. canonical: count only the tokenisation that the
    vocabulary would choose."""

    shared: tuple[str | tuple[int, ...], ...]
    questions: tuple[OptionQuestion, ...]
    canonical: bool = False
    adapters: tuple[AdapterUse, ...] = ()
    cache_salt: str
