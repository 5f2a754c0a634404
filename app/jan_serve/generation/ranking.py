"""Scores of documents for a query, by a reranker with or without a scoring head."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import msgspec

from jan_serve.core.models import ModelFacts
from jan_serve.core.trace import current_trace
from jan_serve.generation.embeddings import score_index, to_floats, unsupported
from jan_serve.generation.service import LeasedModel
from jan_serve.ipc.messages import Embedded
from jan_serve.ipc.scoring import OptionsWeighed, RankRequest

_YES_NO: Final = ("yes", "no")
_QWEN3_TEMPLATE: Final = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct"
    " provided."
    ' Note that the answer can only be "yes" or "no".<|im_end|>\n'
    "<|im_start|>user\n<Instruct>: Given a web search query, retrieve relevant passages that answer the query\n"
    "<Query>: {query}\n<Document>: {document}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
)
"""The prompt that Qwen3-Reranker was trained with, for files that lack it."""
_HIGHEST: Final = 100.0
"""Highest raw score: the logarithm of a probability that rounds to 0 or 1 has no end."""


class Ranked(msgspec.Struct, frozen=True, kw_only=True):
    """raw: by document, the output of the head, or the logarithm of the odds of `yes`."""

    model: str
    raw: tuple[float, ...]
    prompt_tokens: int


async def rank(
    model: LeasedModel,
    query: str,
    documents: Sequence[str],
    *,
    max_document_tokens: int | None = None,
    truncate: bool = False,
) -> Ranked:
    """Score each document. Cancelling the call aborts the work. Options: see RankRequest.

    Raises InvalidRequest, ContextLengthExceeded (which names the documents), UnsupportedOperation (no reranker) and
    EngineFailure.
    """
    current_trace().operation = "rank"
    template, labels = _way_to_rank(model.name, model.facts)
    request = RankRequest(
        query=query,
        documents=tuple(documents),
        template=template,
        labels=labels,
        max_document_tokens=max_document_tokens,
        truncate=truncate,
    )
    answer = await model.wait(model.client.ask(request))
    return Ranked(
        model=model.name, raw=_raw_scores(model.name, model.facts, answer), prompt_tokens=answer.prompt_tokens
    )


def probability(raw: float) -> float:
    """A raw score from 0 to 1."""
    return 1.0 / (1.0 + math.exp(-raw)) if raw >= 0 else math.exp(raw) / (1.0 + math.exp(raw))


def _way_to_rank(name: str, facts: ModelFacts) -> tuple[str | None, tuple[str, ...]]:
    """The template of a pair, and the labels of a model without a head. Raises UnsupportedOperation."""
    template = facts.chat_templates.get("rerank")
    names = (name, facts.metadata.get("general.name", ""))
    if template is None and facts.architecture == "qwen3" and any("rerank" in each.lower() for each in names):
        template = _QWEN3_TEMPLATE
    if facts.pooling == "rank":
        return template, ()
    if facts.is_embedding_model:
        reason = "makes embeddings, and has no scoring head"
    elif template is None:
        reason = "has no scoring head, and no template for pairs in which it would write yes or no"
    else:
        return template, _YES_NO
    raise unsupported(name, f"{reason}: reranking needs a reranker.")


def _raw_scores(name: str, facts: ModelFacts, answer: Embedded | OptionsWeighed) -> tuple[float, ...]:
    if isinstance(answer, OptionsWeighed):
        return tuple(_limited(one.log_masses[0] - one.log_masses[1]) for one in answer.answers)
    index = score_index(facts, answer.dimensions)
    if index is None:
        labels = ", ".join(facts.score_labels) or f"{answer.dimensions} outputs"
        raise unsupported(name, f"sorts texts into classes ({labels}): it has no score for a document.")
    scores = [to_floats(vector)[index] for vector in answer.vectors]
    return tuple(scores) if answer.dimensions == 1 else tuple(map(_log_odds, scores))


def _log_odds(value: float) -> float:
    """Logarithm of the odds of a probability."""
    if value <= 0.0 or value >= 1.0:
        return math.copysign(_HIGHEST, value - 0.5)
    return _limited(math.log(value) - math.log1p(-value))


def _limited(raw: float) -> float:
    return min(_HIGHEST, max(-_HIGHEST, raw))
