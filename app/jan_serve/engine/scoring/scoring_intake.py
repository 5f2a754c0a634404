"""Tokenises requests that score documents or options. The intake thread; it only reads the vocabulary."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from jan_serve.engine.embedding.input_pooling import EmbedJob
from jan_serve.engine.llama.vocab import Vocab
from jan_serve.engine.scoring.options import (
    BATCH_TOKENS,
    OptionJob,
    OptionTree,
    SpelledOption,
    TokenisedQuestion,
)
from jan_serve.engine.tokenizing import MoreTokens, TextTokenizer, Work, within
from jan_serve.engine.tokens import shared_prefix
from jan_serve.errors import InvalidRequest, UnsupportedOperation
from jan_serve.ipc.messages import EmbedRequest
from jan_serve.ipc.scoring import AdapterUse, RankRequest, WeighOptions

MAX_OPTION_BYTES: Final = BATCH_TOKENS  # a path of tokens, of a byte each at least, is in one batch
_PLACES: Final = re.compile(r"\{query\}|\{document\}")


def pair_rows(tokenizer: TextTokenizer, request: RankRequest, n_ctx: int) -> Work[list[list[int]]]:
    """One row a document. Raises ContextLengthExceeded for the first one that is too long."""
    pairs = _Pairs(tokenizer, request, n_ctx)
    rows: list[list[int]] = []
    for index, document in enumerate(request.documents):
        rows.append((yield from within(pairs.row(document), n_ctx, param="documents", item=index)))
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
    """The tokens before the query, between, and after the document: those that the vocabulary says it adds. BERT's
    vocabularies end each text with a separator, even if their file does not say so. llama-server leaves it out."""
    special = {role: token.id for role, token in vocab.special.items()}
    start = [special["bos"]] if vocab.add_bos and "bos" in special else []
    eos = special.get("eos", special.get("sep"))
    end = [eos] if vocab.add_eos and eos is not None else []
    between = end + ([special["sep"]] if vocab.add_sep and "sep" in special else [])
    if not end:
        added = vocab.tokenize("", add_special=True, parse_special=False)
        end = [token for token in added[-1:] if token in (eos, special.get("sep")) and token not in start]
    return start, between, end


class ScoringIntake:
    """Tokenises and checks what one model shall score."""

    def __init__(self, tokenizer: TextTokenizer, *, n_ctx: int, has_head: bool, generates: bool) -> None:
        """n_ctx: max tokens of a prompt. has_head: whether the model scores; generates: whether it writes."""
        self._tokenizer = tokenizer
        self._vocab = tokenizer.vocab
        self._n_ctx = n_ctx
        self._has_head = has_head
        self._generates = generates
        self._pieces: dict[bytes, list[int]] = {}

    def rank(self, request: RankRequest) -> Work[EmbedJob | OptionJob]:
        """Prepare a ranking. Raises InvalidRequest, ContextLengthExceeded, UnsupportedOperation."""
        rows = yield from pair_rows(self._tokenizer, request, self._n_ctx)
        empty = next((index for index, row in enumerate(rows) if not row), None)
        if empty is not None:
            raise InvalidRequest(f"documents: item {empty} and the query are empty", param="documents")
        if self._has_head:
            return EmbedJob(
                EmbedRequest(id=request.id, inputs=(), normalize=False, client=request.client), rows
            )
        self._check_generates()
        options = self._spelled(request.labels)
        return (yield from self._job(request, rows, [options] * len(rows)))

    def weigh(self, request: WeighOptions) -> Work[OptionJob]:
        """Raises InvalidRequest, UnsupportedOperation, ContextLengthExceeded for the first one that is too long."""
        self._check_generates()
        shared: list[int] = []
        rows: list[list[int]] = []
        spelled: dict[tuple[str, ...], list[SpelledOption]] = {}
        for index, question in enumerate(request.questions):
            work = self._row(request, shared, question.prompt)
            row = yield from within(work, self._n_ctx, param="questions", item=index)
            if not row:
                raise InvalidRequest(f"questions: item {index} has an empty prompt", param="questions")
            rows.append(row)
            if question.options not in spelled:
                spelled[question.options] = self._spelled(question.options)
            yield None
        return (
            yield from self._job(
                request,
                rows,
                [spelled[question.options] for question in request.questions],
                canonical_only=request.canonical,
                adapters=request.adapters,
                key=request.cache_salt,
            )
        )

    def _row(
        self, request: WeighOptions, shared: list[int], prompt: Sequence[str | tuple[int, ...]]
    ) -> Work[list[int]]:
        """The tokens of a whole prompt. shared: those that all prompts begin with; filled for the first one."""
        if not shared:
            shared += yield from self._ids([], request.shared)
            bos = self._vocab.bos_id
            if bos is not None and self._vocab.add_bos and shared[:1] != [bos]:
                shared.insert(0, bos)
        return (yield from self._ids(shared, prompt))

    def _job(
        self,
        request: RankRequest | WeighOptions,
        rows: Sequence[list[int]],
        options: Sequence[Sequence[SpelledOption]],
        *,
        canonical_only: bool = False,
        adapters: tuple[AdapterUse, ...] = (),
        key: str = "",
    ) -> Work[OptionJob]:
        if not self._pieces:
            self._pieces = yield from self._tokenizer.aside(self._text_pieces)
        questions: list[TokenisedQuestion] = []
        for row, spelled in zip(rows, options, strict=True):
            questions.append(
                TokenisedQuestion(row, OptionTree(spelled, self._pieces, canonical_only=canonical_only))
            )
            yield None
        return OptionJob(
            request.id, adapters, f"{adapters} {key}", questions, shared_prefix(rows), client=request.client
        )

    def _check_generates(self) -> None:
        if not self._generates:
            raise UnsupportedOperation("this model does not write text: it cannot choose", param="model")

    def _ids(self, before: list[int], prompt: Sequence[str | tuple[int, ...]]) -> Work[list[int]]:
        """These tokens and those of a prompt. Raises MoreTokens, which counts all."""
        ids = [*before]
        for piece in prompt:
            try:
                ids += yield from self._tokenizer.ids(
                    piece, parse_special=True, room=max(0, self._n_ctx - len(ids)), param="questions"
                )
            except MoreTokens as more:
                raise MoreTokens(len(ids) + more.at_least) from None
        return ids

    def _spelled(self, options: Sequence[str]) -> list[SpelledOption]:
        """Vocabularies that write a space before each word may write one before the option. Raises InvalidRequest for
        an option that the vocabulary changes, as one that knows no capitals does."""
        texts = [option.encode() for option in options]
        spelled: list[SpelledOption] = []
        for option, text in zip(options, texts, strict=True):
            if len(text) > MAX_OPTION_BYTES:
                raise InvalidRequest(
                    f"options: {option[:40]!r}… has {len(text)} bytes, the limit is {MAX_OPTION_BYTES}",
                    param="options",
                )
            path = tuple(self._vocab.tokenize(option, add_special=False, parse_special=False))
            written = b"".join(self._vocab.piece(token, special=False) for token in path)
            if not path or written not in (text, b" " + text):
                raise InvalidRequest(
                    f"options: the vocabulary of this model cannot write {option[:80]!r}, but"
                    f" {written.decode('utf-8', 'replace')[:80]!r}",
                    param="options",
                )
            if written != text and written in texts:
                raise InvalidRequest(
                    f"options: {option[:80]!r} differs from another one by a space, which this model's vocabulary adds",
                    param="options",
                )
            spelled.append(SpelledOption(tuple(dict.fromkeys((written, text))), path))
        return spelled

    def _text_pieces(self) -> dict[bytes, list[int]]:
        """The tokens of each text. Takes a moment for large vocabularies."""
        found: dict[bytes, list[int]] = {}
        for token, text in enumerate(self._vocab.pieces()):
            if text and not self._vocab.is_control(token):
                found.setdefault(text, []).append(token)
        return found
