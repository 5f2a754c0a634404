"""Renders an answer of /generate, whole and as a stream. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jan_serve.core.events import Finished, GenerationEvent, TextDelta, TokenInfo
from jan_serve.core.events import FinishReason as CoreReason
from jan_serve.dialects.lmdeploy.generate.wire import FinishReason, GenerateReply
from jan_serve.dialects.lmdeploy.render_common import Answer, ids_of, texts_of


class GenerateRenderer(Answer):
    """logprobs: show pairs of log-probability and id. A stream has new text with the counts so far, then the finish
    reason."""

    def __init__(self, *, include_stop: bool, logprobs: bool) -> None:
        super().__init__(1, include_stop=include_stop)
        self._logprobs = logprobs

    def body(self) -> GenerateReply:
        (choice,) = self.choices
        return self._reply(choice.text, choice.tokens, choice.reason)

    def chunks(self, event: GenerationEvent) -> Iterator[GenerateReply]:
        self.add(event)
        match event:
            case TextDelta() as delta if delta.text or delta.tokens:
                yield self._reply(delta.text, delta.tokens, None)
            case Finished() as finished:
                end = self.shown_end(finished)
                yield self._reply(texts_of(end), end, finished.reason, last=True)
            case _:
                pass

    def _reply(
        self, text: str, tokens: Sequence[TokenInfo], reason: CoreReason | None, *, last: bool = False
    ) -> GenerateReply:
        """tokens: their ids go into the reply. last: the end of a stream, which has null in place of empty logprobs."""
        finish: FinishReason | None = None
        if reason is not None:
            finish = {"type": "stop" if reason == "tool_calls" else reason}
        pairs = [(min(token.logprob or 0.0, 0.0), token.id) for token in tokens] if self._logprobs else None
        return {
            "text": text,
            "output_ids": ids_of(tokens),
            "meta_info": {
                "prompt_tokens": self.prompt_tokens,
                "completion_tokens": self.completion_tokens,
                "finish_reason": finish,
                "output_token_logprobs": None if last and not tokens else pairs,
                "routed_experts": None,
            },
        }
