"""Tokenises texts of any length in parts, with other requests' work between them.

TextCuts knows where a long text may be cut so that its parts, tokenised by themselves, have the tokens of the whole.
llama.cpp first takes the special tokens out of a text, the longest first, and then tokenises what is between them, each
stretch by itself. So a cut never changes a token

- before a special token, if no other one overlaps it;
- between a letter and a space, line feed or mark, if no special token crosses the cut and no token of the vocabulary
  has a letter followed by that character. Then no merge crosses it. The expressions that split texts for BPE end a word
  after a letter before such a character (an apostrophe excepted), or split both sides alike, and none looks back. WPM
  splits words there, and the longest match of RWKV ends there.

Vocabularies of other kinds (UGM sums scores over the whole stretch, PLaMo2 searches it from its end, DNA has words of
six letters) are only cut at special tokens. Where SPM writes a space before each stretch, the cut takes one away.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import unicodedata
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeVar

from jan_serve.engine.llama.bindings import lib
from jan_serve.engine.llama.vocab import Vocab
from jan_serve.errors import ContextLengthExceeded, InvalidRequest

_CUT_KINDS: Final = (
    lib.LLAMA_VOCAB_TYPE_SPM,
    lib.LLAMA_VOCAB_TYPE_BPE,
    lib.LLAMA_VOCAB_TYPE_WPM,
    lib.LLAMA_VOCAB_TYPE_RWKV,
)
_UNKNOWN, _CONTROL, _DEFINED, _STRIPS = 1 << 0, 1 << 3, 1 << 4, 1 << 7 | 1 << 8  # LLAMA_TOKEN_ATTR_…
_JOINED: Final = re.compile(rb"[A-Za-z\x80-\xff][ \n\t,;:.!?\"()\[\]{}]")
_ALL_ENDS: Final = frozenset(b' \n\t,;:.!?"()[]{}')
_SPACES: Final = frozenset(b" \t\n\v\f\r")
_MARK: Final = "▁"
_IN_UTF8: Final = frozenset(range(0xF5)) - {0xC0, 0xC1}
_TRIES: Final = 64


class TextCuts:
    """Cuts for one vocabulary. Immutable; takes some tenths of a second to make for a large one.

    longest: most bytes of a text that one token stands for; None: any number.
    """

    def __init__(self, vocab: Vocab) -> None:
        kind = int(lib.llama_vocab_type(vocab.pointer))
        pieces = vocab.pieces()
        attributes = [int(lib.llama_vocab_get_attr(vocab.pointer, token)) for token in range(vocab.n_tokens)]
        defined: set[bytes] = set()
        marked: set[bytes] = set()
        strips = 0
        for token, attribute in enumerate(attributes):
            if attribute & (_UNKNOWN | _CONTROL | _DEFINED):
                text: bytes = lib.llama_vocab_get_text(vocab.pointer, token)
                (marked if attribute & (_UNKNOWN | _CONTROL) else defined).add(text)
                strips |= attribute & _STRIPS
        self._defined, self._special = tuple(defined - {b""}), tuple((defined | marked) - {b""})
        self._longest_special = max(map(len, self._special), default=1)
        self._strips = bool(strips)
        is_dna = b"<dna>" in pieces
        self._takes_space = kind == lib.LLAMA_VOCAB_TYPE_SPM and _written(vocab, "a") == b" a"
        self._ends: frozenset[int] = frozenset()
        self._joined: frozenset[bytes] = frozenset()
        if kind in _CUT_KINDS and not is_dna:
            # Where capitals become small letters, the pairs of a text are not those of its tokens.
            only_spaces = kind != lib.LLAMA_VOCAB_TYPE_WPM and _written(vocab, "A").lstrip() == b"a"
            self._ends = _ALL_ENDS & _SPACES if only_spaces else _ALL_ENDS
            if self._takes_space:
                self._ends = frozenset(b" ")
        if kind != lib.LLAMA_VOCAB_TYPE_WPM:
            pairs = zip(pieces, attributes, strict=True)
            merged = b"\0".join(piece for piece, attribute in pairs if not attribute & _DEFINED)
            self._joined = frozenset(_JOINED.findall(merged))
        self.longest = None if is_dna or self._strips else _longest(vocab, kind, pieces)

    def least_tokens(self, data: bytes) -> int:
        """A number of tokens that the text has at least."""
        return 0 if self.longest is None else -(-len(data) // self.longest)

    def last(self, data: bytes, low: int, high: int, *, parse_special: bool) -> tuple[int, int] | None:
        """The last cut between these places: where one part ends, and the next begins. Neither part is empty."""
        special = self._special if parse_special else self._defined
        tries = 0
        for place in range(min(high, len(data) - 1), low, -1):
            if (
                data[place] in self._ends
                and data[place - 1 : place + 1] not in self._joined
                and _is_letter(data, place)
            ):
                if self._may_cut(data, place, special):
                    return place, place + self._takes_space
                tries += 1
                if tries == _TRIES:
                    break
        window = data[low : high + self._longest_special]
        place = max(
            (self._before(data, low, high, text, special) for text in special if text in window), default=0
        )
        return (place, place) if place else None

    def _may_cut(self, data: bytes, place: int, special: tuple[bytes, ...]) -> bool:
        """Whether no special token touches a cut after a letter."""
        if self._crosses(data, place, special):
            return False
        # After a special token, SPM writes one more space, and some take all that follow.
        matters = self._takes_space or (self._strips and data[place] in _SPACES)
        if matters and any(data.endswith(text, 0, place) for text in special):
            return False
        if not self._takes_space:
            return True
        # The space is the vocabulary's own: neither it nor what follows belongs to a special token.
        following = data[place + 1 : place + 2]
        return (
            following.isalnum()
            and not self._crosses(data, place + 1, special)
            and not any(data.startswith(text, place) or data.startswith(text, place + 1) for text in special)
        )

    def _before(self, data: bytes, low: int, high: int, text: bytes, special: tuple[bytes, ...]) -> int:
        """The start of the last of these special tokens, if it is one for certain; else 0."""
        start = data.rfind(text, low + 1, high + len(text))
        if start < 0 or any(self._crosses(data, place, special) for place in (start, start + len(text))):
            return 0
        if self._strips and (data[start - 1] in _SPACES or data[start] in _SPACES):
            return 0
        return start

    def _crosses(self, data: bytes, place: int, special: tuple[bytes, ...]) -> bool:
        """Whether the text of any special token begins before a place and ends after it."""
        reach = self._longest_special - 1
        near = data[max(0, place - reach) : place + reach]
        return any(
            text in near and data.find(text, max(0, place - len(text) + 1), place + len(text) - 1) >= 0
            for text in special
        )


def _is_letter(data: bytes, end: int) -> bool:
    """Whether the character before `end` is a letter of every version of Unicode that llama.cpp may know."""
    start = end - 1
    while data[start] & 0xC0 == 0x80:
        start -= 1
    return unicodedata.ucd_3_2_0.category(data[start:end].decode("utf-8"))[0] == "L"


def _written(vocab: Vocab, text: str) -> bytes:
    """A text after it was tokenised."""
    tokens = vocab.tokenize(text, add_special=False, parse_special=False)
    return b"".join(vocab.piece(token, special=True) for token in tokens)


def _longest(vocab: Vocab, kind: int, pieces: list[bytes]) -> int | None:
    """None if a token may stand for any text: WPM and UGM drop spaces and have one token for unknown words."""
    if kind not in (lib.LLAMA_VOCAB_TYPE_SPM, lib.LLAMA_VOCAB_TYPE_BPE, lib.LLAMA_VOCAB_TYPE_RWKV):
        return None
    single = {piece[0] for piece in pieces if len(piece) == 1}
    if kind == lib.LLAMA_VOCAB_TYPE_BPE and not single >= _IN_UTF8:
        return None  # BPE drops bytes that the vocabulary lacks
    spaced = next((token for token, piece in enumerate(pieces) if b" " in piece), None)
    # A text may have the vocabulary's mark itself, three bytes that the piece has as a space.
    extra = 2 if spaced is not None and _MARK in vocab.entry(spaced) else 0
    return max((len(piece) + extra * piece.count(b" ") for piece in pieces), default=1) or 1


T = TypeVar("T")

Work = Generator["Future[Any] | None", None, T]
"""Work in parts, none longer than some hundredths of a second. Others have their turn after each; a future that is
yielded must be done before the next part."""

PART_BYTES: Final = 8 << 10
"""The time to take special tokens out of a part grows with the square of their number: 25 ms for `<s>` alone."""
_ASIDE_BYTES: Final = 32 << 10  # a longer stretch without a cut is tokenised by another thread
MAX_STRETCH: Final = 1 << 20
"""Bytes without a cut. llama.cpp takes about a second for them, cannot be stopped, and needs 350 bytes for each."""
_NICE: Final = 10


class MoreTokens(Exception):
    """A text has more tokens than there is room for, and was not read to its end. at_least: how many it has."""

    def __init__(self, at_least: int) -> None:
        super().__init__(at_least)
        self.at_least = at_least


class TextTokenizer:
    """Tokenises the texts of requests. One thread."""

    def __init__(self, vocab: Vocab) -> None:
        self.vocab = vocab
        self._cuts: TextCuts | None = None
        self._aside = ThreadPoolExecutor(1, "long text", initializer=_yield_to_others)
        self._spent = 0  # bytes since the last turn of others

    def tokens(
        self,
        text: str,
        *,
        parse_special: bool,
        add_special: bool = False,
        room: int | None = None,
        param: str = "prompt",
    ) -> Work[list[int]]:
        """Ids exactly as `Vocab.tokenize` gives them. room: a long text with more tokens is not read to its end.

        param: field name in errors. Raises MoreTokens for a text that was not read to its end, InvalidRequest for a
        stretch that is too long.
        """
        data = text.encode("utf-8")
        yield from self._wait_for_turn(len(data))
        if len(data) <= PART_BYTES:
            return self.vocab.tokenize(text, add_special=add_special, parse_special=parse_special)
        cuts = yield from self._get_cuts()
        if room is not None and (least := cuts.least_tokens(data)) > room:
            raise MoreTokens(least)
        ids, is_all = yield from self._read(cuts, data, parse_special, room, param)
        if not is_all:
            raise MoreTokens(len(ids))
        before, after = _added(self.vocab) if add_special else ([], [])
        return [*before, *ids, *after]

    def ids(
        self,
        piece: str | Sequence[int],
        *,
        parse_special: bool,
        param: str,
        add_special: bool = False,
        room: int | None = None,
    ) -> Work[list[int]]:
        """Ids of a text, as `tokens`, or these ids. Raises InvalidRequest for one outside the vocabulary too."""
        if isinstance(piece, str):
            return (
                yield from self.tokens(
                    piece, parse_special=parse_special, add_special=add_special, room=room, param=param
                )
            )
        self.check_ids(piece, param)
        return list(piece)

    def check_ids(self, ids: Iterable[int], param: str) -> None:
        """Raises InvalidRequest for an id outside the vocabulary."""
        n_tokens = self.vocab.n_tokens
        for token in ids:
            if not 0 <= token < n_tokens:
                raise InvalidRequest(
                    f"{param}: token id {token} is outside the vocabulary (0 to {n_tokens - 1})", param=param
                )

    def first(self, text: str, count: int, *, param: str) -> Work[list[int] | None]:
        """The first tokens of a text, special tokens not parsed; None if it has no more than `count`."""
        data = text.encode("utf-8")
        yield from self._wait_for_turn(len(data))
        if len(data) <= PART_BYTES:
            ids = self.vocab.tokenize(text, add_special=False, parse_special=False)
        else:
            cuts = yield from self._get_cuts()
            ids, _ = yield from self._read(cuts, data, False, count, param)
        return ids[:count] if len(ids) > count else None

    def _wait_for_turn(self, size: int) -> Work[None]:
        """Many small texts take as long as a large one."""
        self._spent += size
        if self._spent > PART_BYTES:
            self._spent = 0
            yield None

    def _get_cuts(self) -> Work[TextCuts]:
        if self._cuts is None:
            self._cuts = yield from self.aside(lambda: TextCuts(self.vocab))
        return self._cuts

    def _read(
        self, cuts: TextCuts, data: bytes, parse_special: bool, room: int | None, param: str
    ) -> Work[tuple[list[int], bool]]:
        """The tokens of the first parts, until they are more than `room`, and whether they are all."""
        found: list[int] = []
        start = 0
        while start < len(data):
            if room is not None and len(found) > room:
                return found, False
            end, following = yield from self._part(cuts, data, start, parse_special, param)
            tokenize = partial(
                self.vocab.tokenize_bytes, data[start:end], add_special=False, parse_special=parse_special
            )
            if end - start <= _ASIDE_BYTES:
                found += tokenize()
                yield None
            else:
                found += yield from self.aside(tokenize)
            start = following
        return found, True

    def aside(self, call: Callable[[], T]) -> Work[T]:
        """The result of a call that takes long and needs no other state: another thread runs it."""
        future = self._aside.submit(call)
        yield future
        return future.result()

    @staticmethod
    def _part(
        cuts: TextCuts, data: bytes, start: int, parse_special: bool, param: str
    ) -> Work[tuple[int, int]]:
        """Where the next part ends, and where the one after it begins."""
        low = start
        while low + PART_BYTES < len(data):
            cut = cuts.last(data, low, low + PART_BYTES, parse_special=parse_special)
            if cut is not None:
                return cut
            low += PART_BYTES
            yield None
            if low - start > MAX_STRETCH:
                raise InvalidRequest(
                    f"{param}: a text has {MAX_STRETCH} bytes without an end of a word that this model's vocabulary"
                    " knows: it cannot be tokenised",
                    param=param,
                )
        return len(data), len(data)


def within(work: Work[list[int]], n_ctx: int, *, param: str, item: int) -> Work[list[int]]:
    """The tokens of an item. Raises ContextLengthExceeded, which names it, if they are too many."""
    try:
        row = yield from work
    except MoreTokens as more:
        raise ContextLengthExceeded(more.at_least, n_ctx, param=param, item=item, at_least=True) from None
    if len(row) > n_ctx:
        raise ContextLengthExceeded(len(row), n_ctx, param=param, item=item)
    return row


def finish(work: Work[T]) -> T:
    """Do all of it at once. Blocks."""
    while True:
        try:
            future = next(work)
        except StopIteration as end:
            return end.value
        if future is not None:
            future.exception()


def _added(vocab: Vocab) -> tuple[list[int], list[int]]:
    """The tokens that the vocabulary writes before and after a text."""
    alone = vocab.tokenize("a", add_special=False, parse_special=False)
    whole = vocab.tokenize("a", add_special=True, parse_special=False)
    start = next(i for i in range(len(whole)) if whole[i : i + len(alone)] == alone)
    return whole[:start], whole[start + len(alone) :]


def _yield_to_others() -> None:
    """Give this thread a lower priority, where threads have their own."""
    if hasattr(os, "setpriority") and os.uname().sysname == "Linux":
        with contextlib.suppress(OSError):  # an initialiser that fails breaks its pool for ever
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
