"""A vocabulary of given pieces; texts are split into the longest ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jan_serve.core.models import SpecialToken
from jan_serve.engine.llama.vocab import Vocab


class GreedyVocab(Vocab):
    """The control tokens come first, in the order of their roles. It knows a text of these pieces only."""

    def __init__(
        self,
        pieces: Sequence[str | bytes],
        specials: Mapping[str, str] | None = None,
        *,
        eog: Sequence[str] = (),
        add_bos: bool = False,
        add_eos: bool = False,
        add_sep: bool = False,
        adds_space: bool = False,
        only_small: bool = False,
        always_ends: bool = False,
    ) -> None:
        """eog: roles whose tokens end generation. adds_space: before each text, as SentencePiece does. only_small: it
        knows no capitals. always_ends: a text with special tokens ends with the separator, as BERT's do."""
        specials = specials or {}
        self.special = {
            role: SpecialToken(token, text) for token, (role, text) in enumerate(specials.items())
        }
        self._controls = [text.encode() for text in specials.values()]
        self._all = [
            *self._controls,
            *(piece if isinstance(piece, bytes) else piece.encode() for piece in pieces),
        ]
        self.n_tokens = len(self._all)
        self.eog_ids = tuple(self.special[role].id for role in eog)
        self._eog = frozenset(self.eog_ids)
        self.add_bos, self.add_eos, self.add_sep = add_bos, add_eos, add_sep
        self._adds_space, self._only_small, self._always_ends = adds_space, only_small, always_ends

    def is_control(self, token: int) -> bool:
        return token < len(self._controls)

    def is_markup(self, token: int) -> bool:
        return self.is_control(token)

    def piece(self, token: int, *, special: bool) -> bytes:
        return b"" if self.is_control(token) and not special else self._all[token]

    def pieces(self, tokens: range | None = None) -> list[bytes]:
        return [self._all[token] for token in tokens or range(self.n_tokens)]

    def ids(self, *pieces: str) -> list[int]:
        """The tokens with these texts."""
        return [self._all.index(piece.encode()) for piece in pieces]

    def texts(self, tokens: Sequence[int]) -> list[str]:
        return [self._all[token].decode() for token in tokens]

    def tokenize_inside(self, text: str, *, parse_special: bool) -> list[int]:
        return self.tokenize(text, add_special=False, parse_special=parse_special)

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        text = text.lower() if self._only_small else text
        rest = f" {text}".encode() if self._adds_space and text else text.encode()
        known = range(0 if parse_special else len(self._controls), self.n_tokens)
        tokens: list[int] = []
        while rest:
            found = [token for token in known if self._all[token] and rest.startswith(self._all[token])]
            tokens.append(max(found, key=lambda token: len(self._all[token])))
            rest = rest[len(self._all[tokens[-1]]) :]
        if add_special and self.add_bos:
            tokens.insert(0, self.special["bos"].id)
        if add_special and self._always_ends:
            tokens.append(self.special["sep"].id)
        return tokens

    def detokenize(self, tokens: Sequence[int], *, remove_special: bool) -> bytes:
        text = b"".join(self.piece(token, special=not remove_special) for token in tokens)
        return text.removeprefix(b" ") if self._adds_space else text
