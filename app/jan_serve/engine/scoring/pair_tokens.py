"""The tokens of a query with each of many documents, as a reranker reads them."""

from __future__ import annotations

import re
from typing import Final

from jan_serve.engine.llama.vocab import Vocab
from jan_serve.errors import ContextLengthExceeded
from jan_serve.ipc.scoring import RankRequest

_PLACES: Final = re.compile(r"\{query\}|\{document\}")


def pair_rows(vocab: Vocab, request: RankRequest, n_ctx: int) -> list[list[int]]:
    """One row a document. Raises ContextLengthExceeded, which names all documents that are too long."""
    rows: list[list[int]] = []
    too_long: dict[int, int] = {}
    for index, text in enumerate(request.documents):
        document = text
        if request.max_document_tokens is not None:
            document = _cut(vocab, text, request.max_document_tokens)
        row = _row(vocab, request, document)
        if len(row) > n_ctx and request.truncate:
            row = _fitted(vocab, request, document, n_ctx)
        if len(row) > n_ctx:
            too_long[index] = len(row)
        rows.append(row)
    if too_long:
        longest = max(too_long, key=lambda index: too_long[index])
        raise ContextLengthExceeded(
            too_long[longest],
            n_ctx,
            param="documents",
            item=longest,
            others=tuple(index for index in too_long if index != longest),
        )
    return rows


def _row(vocab: Vocab, request: RankRequest, document: str) -> list[int]:
    """As llama-server joins a pair: by the template of the model, or by its separators."""
    if request.template is not None:
        # At once: a query with {document} in it is not a place for the document.
        values = {"{query}": request.query, "{document}": document}
        text = _PLACES.sub(lambda place: values[place[0]], request.template)
        return vocab.tokenize(text, add_special=False, parse_special=True)
    query = vocab.tokenize(request.query, add_special=False, parse_special=False)
    words = vocab.tokenize(document, add_special=False, parse_special=False)
    start, between, end = _separators(vocab)
    return [*start, *query, *between, *words, *end]


def _separators(vocab: Vocab) -> tuple[list[int], list[int], list[int]]:
    """The tokens before the query, between, and after the document: those that the vocabulary says it adds.

    BERT's vocabularies end each text with a separator, even if their file does not say so. llama-server leaves it out.
    """
    special = {role: token.id for role, token in vocab.special.items()}
    start = [special["bos"]] if vocab.add_bos and "bos" in special else []
    eos = special.get("eos", special.get("sep"))
    end = [eos] if vocab.add_eos and eos is not None else []
    between = end + ([special["sep"]] if vocab.add_sep and "sep" in special else [])
    if not end:
        added = vocab.tokenize("", add_special=True, parse_special=False)
        end = [token for token in added[-1:] if token in (eos, special.get("sep")) and token not in start]
    return start, between, end


def _fitted(vocab: Vocab, request: RankRequest, document: str, n_ctx: int) -> list[int]:
    """The row of the longest beginning of the document that fits; of none, if only the query fits, or not even that."""
    alone = _row(vocab, request, "")
    room = n_ctx - len(alone)
    while room > 0:
        row = _row(vocab, request, _cut(vocab, document, room))
        if len(row) <= n_ctx:
            return row
        room -= len(row) - n_ctx  # a cut may tokenise to more
    return alone


def _cut(vocab: Vocab, text: str, tokens: int) -> str:
    """The first tokens of a text, at the end of a whole character."""
    ids = vocab.tokenize(text, add_special=False, parse_special=False)
    if len(ids) <= tokens:
        return text
    return vocab.detokenize(ids[:tokens], remove_special=False).decode("utf-8", "ignore")
