"""The tokens of a query with each of many documents, as a reranker reads them."""

from __future__ import annotations

import re
from typing import Final

from jan_serve.engine.llama.vocab import Vocab
from jan_serve.engine.tokenizing import MoreTokens, TextTokenizer, Work
from jan_serve.errors import ContextLengthExceeded
from jan_serve.ipc.scoring import RankRequest

_PLACES: Final = re.compile(r"\{query\}|\{document\}")


def pair_rows(tokenizer: TextTokenizer, request: RankRequest, n_ctx: int) -> Work[list[list[int]]]:
    """One row a document. Raises ContextLengthExceeded for the first one that is too long."""
    pairs = _Pairs(tokenizer, request, n_ctx)
    rows: list[list[int]] = []
    for index, document in enumerate(request.documents):
        try:
            row = yield from pairs.row(document)
        except MoreTokens as more:
            raise ContextLengthExceeded(
                more.at_least, n_ctx, param="documents", item=index, at_least=True
            ) from None
        if len(row) > n_ctx:
            raise ContextLengthExceeded(len(row), n_ctx, param="documents", item=index)
        rows.append(row)
    return rows


class _Pairs:
    """The rows of one request."""

    def __init__(self, tokenizer: TextTokenizer, request: RankRequest, n_ctx: int) -> None:
        self._tokenizer = tokenizer
        self._request = request
        self._n_ctx = n_ctx
        self._frame: tuple[list[int], list[int]] | None = None  # what is before and after each document

    def row(self, document: str) -> Work[list[int]]:
        """May be too long. Raises MoreTokens if it was not read to its end."""
        request = self._request
        if request.max_document_tokens is not None:
            document = yield from self._cut(document, request.max_document_tokens)
        try:
            row = yield from self._pair(document, self._n_ctx)
        except MoreTokens:
            if not request.truncate:
                raise
        else:
            if len(row) <= self._n_ctx or not request.truncate:
                return row
        return (yield from self._fitted(document))

    def _pair(self, document: str, room: int | None) -> Work[list[int]]:
        """Join a pair as llama-server does: by the template of the model, or by its separators."""
        request = self._request
        if request.template is not None:
            # At once: a query with {document} in it is not a place for the document.
            values = {"{query}": request.query, "{document}": document}
            text = _PLACES.sub(lambda place: values[place[0]], request.template)
            return (yield from self._tokenizer.tokens(text, parse_special=True, room=room, param="documents"))
        if self._frame is None:
            query = yield from self._tokenizer.tokens(
                request.query, parse_special=False, room=self._n_ctx, param="query"
            )
            start, between, end = _separators(self._tokenizer.vocab)
            self._frame = ([*start, *query, *between], end)
        before, after = self._frame
        if len(before) + len(after) > self._n_ctx:
            return [*before, *after]  # too long without any document
        words = yield from self._tokenizer.tokens(document, parse_special=False, room=room, param="documents")
        return [*before, *words, *after]

    def _fitted(self, document: str) -> Work[list[int]]:
        """The row of the longest beginning of the document that fits; of none, if not even the query does."""
        alone = yield from self._pair("", self._n_ctx)
        room = self._n_ctx - len(alone)
        while room > 0:
            row = yield from self._pair((yield from self._cut(document, room)), None)
            if len(row) <= self._n_ctx:
                return row
            room -= len(row) - self._n_ctx  # a cut may tokenise to more
        return alone

    def _cut(self, text: str, tokens: int) -> Work[str]:
        """The first tokens of a text, at the end of a whole character."""
        ids = yield from self._tokenizer.first(text, tokens, param="documents")
        if ids is None:
            return text
        return self._tokenizer.vocab.detokenize(ids, remove_special=False).decode("utf-8", "ignore")


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
