"""Where a long text may be cut so that its parts, tokenised by themselves, have the tokens of the whole.

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

import re
import unicodedata
from typing import Final

from jan_serve.engine.llama.bindings import lib
from jan_serve.engine.llama.vocab import Vocab

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
