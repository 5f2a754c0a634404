"""Turns an EngineRequest into Sequences for the queue: tokenised, validated, with their samplers."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from collections.abc import Sequence as Items
from concurrent.futures import Future
from typing import Final, NamedTuple

from jan_serve.core.kv_transfer import SequenceState
from jan_serve.core.messages import AudioPiece, ImagePiece
from jan_serve.engine.cache.state_transfer import StateShelf
from jan_serve.engine.constraint.grammar_factory import GrammarFactory
from jan_serve.engine.constraint.token_tables import EarlyTables
from jan_serve.engine.llama.chain import Candidates
from jan_serve.engine.llama.vocab import Vocab
from jan_serve.engine.prompt_media import MediaLayout, PromptMedia, PromptPart
from jan_serve.engine.repetition import RepetitionDetector
from jan_serve.engine.sampler import Sampler
from jan_serve.engine.sequence import RequestState, Sequence, SequenceText
from jan_serve.engine.tokenizing import MoreTokens, TextTokenizer, Work
from jan_serve.engine.tokens import PrefixMark, TokenBuffer, Tokens, only_tokens
from jan_serve.errors import (
    ContextLengthExceeded,
    EngineFailure,
    InsufficientMemory,
    InvalidRequest,
    InvalidState,
    ModelFailed,
    UnsupportedOperation,
)
from jan_serve.ipc.messages import (
    AdapterUse,
    CountRequest,
    EngineRequest,
    EngineSettings,
    ResumeState,
    WrittenChoice,
)

_NOTHING: Final = WrittenChoice()
_ANSWER: Final = 1024  # tokens of an answer, at most, for which the context grows
_LENGTHS: Final = 256  # llama.cpp pads contexts to multiples of it


class ContextGrowth(NamedTuple):
    """How long the context may become, and `ask`, which makes it at least so long. The result is its length then.
    Raises InsufficientMemory, and ModelFailed if llama.cpp gives another reason."""

    longest: int
    ask: Callable[[int], Future[int]]

    @property
    def remedy(self) -> str:
        """See ContextLengthExceeded."""
        return f"Shorten the prompt: it grows to {self.longest} tokens at most."


class Intake:
    """Prepares the requests of one model."""

    def __init__(
        self,
        vocab: Vocab,
        settings: EngineSettings,
        *,
        n_ctx: int,
        growth: ContextGrowth | None = None,
        shelf: StateShelf | None = None,
        mark: Callable[[Items[AdapterUse], str], PrefixMark | None] = lambda _uses, _salt: None,
        media: MediaLayout | None = None,
        early: EarlyTables | None = None,
        tokenizer: TextTokenizer | None = None,
    ) -> None:
        """n_ctx: max tokens of a sequence, unless it grows. mark: see Adapters.mark. early: see TokenTables.

        media: None if the model only reads text.
        """
        self._media = media or MediaLayout(None)
        self._vocab = vocab
        self.tokenizer = tokenizer or TextTokenizer(vocab)
        self._settings = settings
        self._n_ctx = n_ctx
        self._growth = growth
        self._shelf = shelf
        self._mark = mark
        # Scratch space of the samplers: only the engine thread uses it.
        self._candidates = Candidates(vocab.n_tokens)
        self._grammars = GrammarFactory(vocab, early)
        self.token_tables = self._grammars.tables

    def prepare(self, request: EngineRequest) -> Work[list[Sequence]]:
        """The `n` sequences of a request. Raises InvalidRequest and its subclasses."""
        self._check_ids(request)
        prompt, media = yield from self._prompt(
            request, self._n_ctx if self._growth is None else self._growth.longest
        )
        remedy = yield from self._grow(request, len(prompt))
        max_new = self._max_new(request, len(prompt), remedy)
        _check_media(request, prompt, media)
        state = _begun(request, len(prompt))
        specials = map(self._vocab.control_token, request.visible_specials)
        state.visible_specials = frozenset(token for token in specials if token is not None)
        mark = self._mark(request.adapters, request.cache_salt)
        if request.adapters and (request.keep_state or request.resume is not None):
            raise UnsupportedOperation(
                "lora: a request with LoRA adapters cannot move between servers", param="lora"
            )
        if request.resume is not None:
            sequences = [self._resumed(state, prompt, max_new, request.resume)]
        else:
            sequences: list[Sequence] = []
            for index, written in _unfinished(request):
                sequences.append(self._sequence(state, index, prompt, max_new, written=written))
                yield None
        for sequence in sequences:
            sequence.mark, sequence.media = mark, media
        return sequences

    def count(self, request: CountRequest) -> Work[int]:
        """Cells that the prompt takes. Raises InvalidRequest and its subclasses."""
        prompt, _ = yield from self._prompt(request, None)
        return len(prompt)

    def _prompt(
        self, request: EngineRequest | CountRequest, room: int | None
    ) -> Work[tuple[Tokens, PromptMedia]]:
        """The prompt's ids. BOS comes first if the GGUF says so, and is never doubled. room: most tokens of its texts.
        Raises ContextLengthExceeded before all of a prompt is read that has more."""
        parts: list[PromptPart] = []
        read = 0
        for piece in request.prompt:
            if isinstance(piece, ImagePiece | AudioPiece):
                parts += self._media.parts(piece, request.prompt_param)
                continue
            try:
                ids = yield from self.tokenizer.ids(
                    piece,
                    parse_special=request.parse_special,
                    room=None if room is None else max(0, room - read),
                    param=request.prompt_param,
                )
            except MoreTokens as more:
                raise ContextLengthExceeded(
                    read + more.at_least,
                    room or 0,
                    max_tokens=request.stopping.max_tokens if isinstance(request, EngineRequest) else None,
                    param=request.prompt_param,
                    at_least=True,
                    remedy=None if self._growth is None else self._growth.remedy,
                ) from None
            if isinstance(piece, str):
                read += len(ids)
            parts.append(ids)
        first = next(filter(None, parts), None)
        bos = self._vocab.bos_id
        starts_with_bos = isinstance(first, list) and first[0] == bos
        if bos is not None and (
            first is None or (request.add_special and self._vocab.add_bos and not starts_with_bos)
        ):
            parts.insert(0, [bos])
        elif first is None:
            raise InvalidRequest(
                "the prompt is empty, and this model has no BOS token to start from",
                param=request.prompt_param,
            )
        salt = request.cache_salt if isinstance(request, EngineRequest) else ""  # a count keeps nothing
        return self._media.assemble(parts, salt)

    def _resumed(self, request: RequestState, prompt: Tokens, max_new: int, resume: ResumeState) -> Sequence:
        """The only sequence of a request that resumes from another server's state."""
        if self._shelf is None:
            raise InvalidRequest("This worker takes no migrated caches.", param="migration_request")
        state = self._shelf.take(resume.state)
        try:
            self._check_resumed(state, prompt, resume)
            return self._sequence(request, 0, prompt, max_new, state)
        except BaseException:
            # No sequence holds the state, so the engine will not drop it.
            self._shelf.drop(resume.state)
            raise

    def _check_resumed(self, state: SequenceState, prompt: Tokens, resume: ResumeState) -> None:
        """Raises InvalidState for the state of another prompt, vocabulary or next token."""
        if list(state.tokens) != prompt.tolist():
            raise InvalidState(
                f"The migrated cache is of another prompt: it has {len(state.tokens)} tokens, and this one"
                f" {len(prompt)}.",
                param="migration_request",
            )
        if len(state.logits) != 4 * self._vocab.n_tokens:
            raise InvalidState("The migrated cache has another vocabulary.", param="migration_request")
        if not 0 <= state.next_token < self._vocab.n_tokens:
            raise InvalidState(
                f"The migrated cache continues with token {state.next_token}, which is outside the vocabulary.",
                param="migration_request",
            )
        if resume.token is not None and resume.token != state.next_token:
            raise InvalidState(
                f"remote_token_id: the migrated cache continues with token {state.next_token}, not {resume.token}",
                param="migration_request",
            )

    def _check_ids(self, request: EngineRequest) -> None:
        if request.n < 1:
            raise InvalidRequest(f"n: {request.n} is below 1", param="n")
        if request.n > 1 and (request.keep_state or request.resume is not None):
            raise InvalidRequest(f"n: a request that migrates has one choice, not {request.n}", param="n")
        if request.prompt_logprobs is not None and request.resume is not None:
            raise InvalidRequest("a migrated prompt has no log-probabilities", param="migration_request")
        if "" in request.stopping.stop:
            raise InvalidRequest("stop: an empty text would end every answer at once", param="stop")
        self.tokenizer.check_ids(request.sampling.logit_bias, "logit_bias")
        self.tokenizer.check_ids(request.stopping.stop_token_ids, "stop_token_ids")
        for token, bias in request.sampling.logit_bias.items():
            if math.isnan(bias) or bias == math.inf:
                raise InvalidRequest(
                    f"logit_bias: the bias of token {token} is {bias}; it must be a number or -inf",
                    param="logit_bias",
                )

    def _grow(self, request: EngineRequest, n_prompt: int) -> Work[str | None]:
        """Have the context grow for a prompt and the beginning of its answer. Returns what can be done if it cannot."""
        growth, requested, written = self._growth, request.stopping.max_tokens, request.written
        if growth is None:
            return None
        answer = _ANSWER if requested is None else min(requested, _ANSWER)
        if written is not None:
            answer = max(answer, *(len(choice.tokens) + 1 for choice in written.choices))
        wanted = min(n_prompt + answer, growth.longest)
        if wanted <= self._n_ctx:
            return growth.remedy
        doubled = self._n_ctx
        while doubled < wanted:
            doubled *= 2
        refused = ""
        for length in (doubled, -(-wanted // _LENGTHS) * _LENGTHS):
            grown = growth.ask(min(length, growth.longest))
            yield grown
            try:
                self._n_ctx = max(self._n_ctx, grown.result())
            except (InsufficientMemory, ModelFailed) as error:
                refused = error.message
            else:
                return growth.remedy
        return f"{refused} Shorten the prompt, unload other models, or use --type-k q8_0 --type-v q8_0."

    def _max_new(self, request: EngineRequest, n_prompt: int, remedy: str | None) -> int:
        """Max tokens to generate, bounded by the context, the request and the server's ceiling."""
        requested = request.stopping.max_tokens
        if n_prompt > self._n_ctx or (n_prompt == self._n_ctx and requested != 0):
            raise ContextLengthExceeded(
                n_prompt, self._n_ctx, max_tokens=requested, param=request.prompt_param, remedy=remedy
            )
        bounds = [self._n_ctx - n_prompt]
        if requested is not None:
            bounds.append(requested)
        if self._settings.max_tokens_ceiling:
            bounds.append(self._settings.max_tokens_ceiling)
        return min(bounds)

    def _sequence(
        self,
        state: RequestState,
        index: int,
        prompt: Tokens,
        max_new: int,
        resumed: SequenceState | None = None,
        written: WrittenChoice = _NOTHING,
    ) -> Sequence:
        """resumed: keeps the seed of the server that computed it. written: what another worker sent of it."""
        request = state.request
        sampling = request.sampling
        seed = sampling.seed if resumed is None else resumed.seed
        if seed is None:
            seed = int.from_bytes(os.urandom(4), "little")
        seed += index
        guide = None if request.guide is None else self._grammars.guided(request.guide)
        sampler = Sampler(
            request,
            seed,
            self._vocab,
            self._n_ctx,
            self._candidates,
            grammar=guide,
            jump_forward=self._settings.jump_forward,
            draws=written.draws,
        )
        sampler.observe_prompt(only_tokens(prompt))
        text = SequenceText(
            request.stopping.stop,
            include_stop=request.stopping.include_stop,
            keep_tokens=request.return_tokens or request.logprobs is not None,
            at_token_end=request.stopping.stop_at_token_end,
            free_tokens=request.stopping.min_tokens if request.stopping.stop_after_min else 0,
        )
        detection = request.stopping.repetition_detection
        sequence = Sequence(
            state=state,
            index=index,
            tokens=TokenBuffer(prompt),
            sampler=sampler,
            text=text,
            max_new=max_new,
            fills_context=len(prompt) + max_new == self._n_ctx and max_new != request.stopping.max_tokens,
            seed=seed if sampling.temperature > 0.0 else None,
            guide=guide,
            repetition=None if detection is None else RepetitionDetector(detection),
            escapes=0 if detection is None else detection.escapes,
            resumed=resumed,
            sum_logprob=written.sum_logprob,
        )
        self._write(sequence, written)
        return sequence

    def _write(self, sequence: Sequence, written: WrittenChoice) -> None:
        """Bring a sequence to where another worker was after these tokens. Raises EngineFailure."""
        if written.tokens and len(sequence.tokens) + len(written.tokens) >= self._n_ctx:
            raise EngineFailure("The answer does not fit into the context of the next worker.")
        sent = pattern = 0
        for count, token in enumerate(written.tokens, start=1):
            sequence.tokens.append(token)
            sequence.sampler.accept(token)
            found = 0 if sequence.repetition is None else sequence.repetition.add(token)
            pattern = found if count >= sequence.request.stopping.min_tokens else 0
            if pattern:
                sequence.escapes -= 1  # the other worker used it here
            piece = self._vocab.piece(token, special=sequence.state.shows(token))
            text = sequence.text.push(piece, None).text
            sent += len(text)
            sequence.has_line_break = sequence.has_line_break or "\n" in text
        if pattern and sequence.repetition is not None:
            sequence.sampler.forbid_next(sequence.repetition.next_of(pattern))
        sequence.num_generated = len(written.tokens)
        # Text may have left though its tokens are not among these: text that may become a stop string is held back.
        sequence.sent_before = written.characters - sent


def _begun(request: EngineRequest, n_prompt: int) -> RequestState:
    """The state of a request, to which the time and the tokens of earlier workers count."""
    now, written = time.monotonic(), request.written
    state = RequestState(request, n_prompt, now, request.n)
    if written is not None:
        over = [choice.num_tokens for choice in written.choices if choice.finished]
        state.unfinished -= len(over)
        state.completion_tokens = sum(over)
        state.arrived -= written.waited_s
        if written.decoded_s is not None:
            state.first_token = now - written.decoded_s
            state.arrived -= written.decoded_s
            state.started = state.arrived
    return state


def _unfinished(request: EngineRequest) -> list[tuple[int, WrittenChoice]]:
    """The choices to sample, by index, with what is written of them. Raises InvalidRequest."""
    if request.written is None:
        return [(index, _NOTHING) for index in range(request.n)]
    choices = request.written.choices
    if len(choices) != request.n or all(choice.finished for choice in choices):
        raise InvalidRequest("nothing is left to write of this answer")
    return [(index, choice) for index, choice in enumerate(choices) if not choice.finished]


def _check_media(request: EngineRequest, prompt: Tokens, media: PromptMedia) -> None:
    """What a request cannot have beside images. Raises UnsupportedOperation, InvalidRequest, EngineFailure."""
    if not media:
        return
    if request.keep_state or request.resume is not None:
        raise UnsupportedOperation(
            "migration_request: a prompt with images or sound cannot move between servers",
            param="migration_request",
        )
    if request.prompt_logprobs is not None:
        raise UnsupportedOperation(
            "prompt_logprobs: a prompt with images or sound has no log-probabilities", param="prompt_logprobs"
        )
    if media.chunks[-1].end == len(prompt):
        raise InvalidRequest(
            f"{request.prompt_param}: text must follow the last image or sound", param=request.prompt_param
        )
    for chunk in media.chunks:
        if not (chunk.piece.pixels if isinstance(chunk.piece, ImagePiece) else chunk.piece.samples):
            raise EngineFailure("An image arrived at the engine without its pixels.")
