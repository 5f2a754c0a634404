"""Events of the answers in the form of TGI's completions. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jan_serve.core.events import Finished, GenerationEvent, Started, TextDelta, TokenInfo
from jan_serve.dialects.tgi.completions.wire import CompletionChoice, CompletionReply, Usage
from jan_serve.dialects.tgi.generate.render import Ending, Generated, TokenHold, TokenTexts
from jan_serve.dialects.tgi.reply_head import ReplyHead


class CompletionAnswer:
    """All continuations, in the order of their ends."""

    def __init__(self, head: ReplyHead, endings: Sequence[Ending]) -> None:
        self._head = head
        self._endings = endings
        self._sequences = [Generated() for _ in endings]
        self._order: list[int] = []
        self._prompt_tokens = 0

    @property
    def generated_tokens(self) -> list[int]:
        """Of each prompt, the end-of-generation token too."""
        return [len(sequence.tokens) for sequence in self._sequences]

    def add(self, event: GenerationEvent) -> None:
        match event:
            case Started() as started:
                self._prompt_tokens += started.prompt_tokens
            case (TextDelta() | Finished()) as choice:
                self._sequences[choice.index].add(choice, self._endings[choice.index])
                if isinstance(choice, Finished):
                    self._order.append(choice.index)
            case _:
                pass

    def body(self) -> CompletionReply:
        reply = self._head.completion([self._choice(index) for index in self._order])
        reply["usage"] = _usage(self._prompt_tokens, sum(self.generated_tokens))
        return reply

    def _choice(self, index: int) -> CompletionChoice:
        sequence = self._sequences[index]
        reason = "stop" if sequence.reason == "eos_token" else sequence.reason
        return _choice(index, sequence.text, reason)


class CompletionChunks:
    """The stream: one event a token, the prompts mixed. The last event of a prompt has its finish reason and counts."""

    def __init__(self, head: ReplyHead, endings: Sequence[Ending]) -> None:
        self._head = head
        self._prompts = [(TokenHold(ending), TokenTexts()) for ending in endings]
        self._prompt_tokens = [0] * len(endings)

    def chunks(self, event: GenerationEvent) -> Iterator[CompletionReply]:
        match event:
            case Started() as started:
                self._prompt_tokens[started.prompt] = started.prompt_tokens
            case TextDelta() as delta:
                for info in self._prompts[delta.index][0].tokens(delta):
                    yield self._chunk(delta.index, info, "")
            case Finished() as finished:
                hold, _ = self._prompts[finished.index]
                before, last, reason = hold.rest(finished)
                for info in before:
                    yield self._chunk(finished.index, info, "")
                if last is not None:
                    chunk = self._chunk(finished.index, last, reason)
                    chunk["usage"] = _usage(self._prompt_tokens[finished.index], hold.count)
                    yield chunk
            case _:
                pass

    def _chunk(self, index: int, info: TokenInfo, reason: str) -> CompletionReply:
        return self._head.completion([_choice(index, self._prompts[index][1].text(info), reason)])


def _choice(index: int, text: str, reason: str) -> CompletionChoice:
    return {"index": index, "text": text, "logprobs": None, "finish_reason": reason}


def _usage(prompt_tokens: int, completion_tokens: int) -> Usage:
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }
