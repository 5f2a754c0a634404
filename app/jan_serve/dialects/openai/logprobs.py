"""Tokens with log-probabilities in the forms of chats and of completions. Pure."""

from __future__ import annotations

import codecs
from collections.abc import Iterable

from jan_serve.core.events import TokenInfo
from jan_serve.dialects.openai.chat.wire import ChatLogprobs, TokenLogprob, TopLogprob
from jan_serve.dialects.openai.completions.wire import CompletionLogprobs


def chat_logprobs(tokens: Iterable[TokenInfo]) -> ChatLogprobs:
    """One entry per token. The chosen token is added to its candidates if there are any and it is not among them."""
    return {"content": [_chat_token(token) for token in tokens if token.logprob is not None], "refusal": None}


def _chat_token(token: TokenInfo) -> TokenLogprob:
    logprob = token.logprob or 0.0
    top = [_candidate(entry.piece, entry.logprob) for entry in token.top]
    if token.top and all(entry.id != token.id for entry in token.top):
        top.append(_candidate(token.piece, logprob))
    own = _candidate(token.piece, logprob)
    return {"token": own["token"], "logprob": logprob, "bytes": own["bytes"], "top_logprobs": top}


def _candidate(piece: bytes, logprob: float) -> TopLogprob:
    return {"token": piece.decode("utf-8", "replace"), "logprob": logprob, "bytes": list(piece)}


class CompletionLogprobsBuilder:
    """Builds the parallel lists of one choice. Offsets count characters of the whole text from `offset`."""

    def __init__(self, offset: int) -> None:
        self._offset = offset
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, tokens: Iterable[TokenInfo]) -> CompletionLogprobs:
        """The lists for these tokens alone. A token inside a character has the offset of that character."""
        lists: CompletionLogprobs = {
            "tokens": [],
            "text_offset": [],
            "token_logprobs": [],
            "top_logprobs": [],
        }
        for token in tokens:
            lists["tokens"].append(token_text(token.piece))
            lists["text_offset"].append(self._offset)
            lists["token_logprobs"].append(token.logprob)
            lists["top_logprobs"].append(_top(token))
            if not token.special:
                self._offset += len(self._decoder.decode(token.piece))
        return lists


def _top(token: TokenInfo) -> dict[str, float] | None:
    """Candidates by text, including the chosen token; None for the first prompt token, which has no probability."""
    if token.logprob is None:
        return None
    top = {token_text(entry.piece): entry.logprob for entry in token.top}
    top[token_text(token.piece)] = token.logprob
    return top


def token_text(piece: bytes) -> str:
    """The token's text, or `bytes:\\x..` for a part of a character, so that different tokens have different keys."""
    try:
        return piece.decode("utf-8")
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in piece)
