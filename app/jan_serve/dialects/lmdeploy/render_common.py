"""Parts that the renderers share: reply head, and choices with LMDeploy's count of the shown tokens. Pure.

A token that ends the text is shown and counted only if the request includes stop texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from jan_serve.core.events import Completed, Finished, GenerationEvent, Started, TokenInfo
from jan_serve.dialects.lmdeploy.serving import Session
from jan_serve.dialects.lmdeploy.wire_common import Usage
from jan_serve.dialects.shared.answers import FoldedAnswer


class ReplyFacts(msgspec.Struct, frozen=True):
    """model: the name that the client sent. created: seconds of the Unix epoch.

    shows_session: the id of the reply is the session's, even if the server chose it.
    """

    session: Session
    created: int
    model: str
    shows_session: bool = True

    @property
    def id(self) -> str:
        """The session's id in digits, known from the first event on; -1 if it is not shown."""
        shown = self.session.id if self.shows_session else self.session.requested_id
        return str(-1 if shown is None else shown)


class Answer(FoldedAnswer):
    """All choices of a call, by index. prompt_tokens: of the prompts that began."""

    def __init__(self, choices: int, *, include_stop: bool) -> None:
        super().__init__(choices)
        self.prompt_tokens = 0
        self._include_stop = include_stop

    @property
    def completion_tokens(self) -> int:
        return sum(len(choice.tokens) for choice in self.choices)

    def add(self, event: GenerationEvent) -> None:
        super().add(event)
        match event:
            case Started() as started:
                self.prompt_tokens += started.prompt_tokens
            case Finished() as finished:
                for token in self.shown_end(finished):
                    self.choices[finished.index].texts.append(text_of(token))
                    self.choices[finished.index].tokens.append(token)
            case Completed() as completed:
                self.prompt_tokens = completed.usage.prompt_tokens
            case _:
                pass

    def shown_end(self, finished: Finished) -> tuple[TokenInfo, ...]:
        """The token that ended the text, if it is part of the answer."""
        if self._include_stop and finished.reason == "stop" and finished.end_token is not None:
            return (finished.end_token,)
        return ()

    def usage(self) -> Usage:
        return {
            "prompt_tokens": self.prompt_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "completion_tokens": self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.completed.usage.cached_tokens},
        }


def text_of(token: TokenInfo) -> str:
    """The text of a single token."""
    return token.piece.decode("utf-8", "replace")


def texts_of(tokens: Iterable[TokenInfo]) -> str:
    """The joined text of tokens, each of whole characters."""
    return "".join(map(text_of, tokens))


def ids_of(tokens: Sequence[TokenInfo]) -> list[int]:
    return [token.id for token in tokens]
