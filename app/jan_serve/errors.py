"""The exception tree of jan-serve.

JanServeError
├── InvalidRequest                the request cannot be served unchanged
│   ├── InvalidJson               the body is not JSON, or exceeds a limit
│   ├── ContextLengthExceeded     the prompt, or prompt plus completion, does not fit the context
│   ├── UnsupportedContent        the model cannot read a content part (image, audio)
│   ├── InvalidImage              an image is damaged, of another format, or exceeds a limit
│   ├── InvalidAudio              a sound is damaged, of another format, or exceeds a limit
│   ├── InvalidDocument           a PDF or text file is damaged, of another format, or exceeds a limit
│   ├── UnsupportedOperation      the model cannot do this (infill without FIM tokens)
│   ├── AdapterNotFound           the model has no such LoRA adapter
│   ├── TemplateError             the chat template failed or exceeded a limit
│   ├── InvalidGrammar            a GBNF text does not parse or exceeds a limit
│   ├── InvalidSchema             not a JSON Schema
│   ├── UnsupportedSchema         a JSON Schema cannot be enforced exactly
│   ├── UnsupportedPattern        a regular expression cannot be enforced exactly
│   ├── InvalidState              a sequence state from another server is damaged or belongs to another model
│   └── GrammarTooComplex         a constraint exceeds the time, rule or nesting budget
├── ModelNotFound                 no such model
├── ModelInUse                    requests hold the model
├── InvalidModel                  the file is not a GGUF model that can be served
├── HubError                      the model hub sent an unusable response
│   ├── HubNotFound               no such repository, revision or file
│   ├── HubAccessDenied           gated, private, or the hub rejects the token
│   └── DigestMismatch            a downloaded file differs from the listing
├── StoreError                    the models folder cannot be read or written
│   └── InsufficientStorage       the disk is full
├── Unavailable                   temporary: retry later
│   ├── Overloaded                the queue is full
│   ├── ModelFailed               the model crashed too often or did not load
│   ├── InsufficientMemory        the model and its context do not fit the free memory
│   ├── Asleep                    the server sleeps until it is woken
│   ├── PeerFailed                another server failed to provide what a request needs
│   ├── HubUnavailable            the model hub is overloaded, stalls or cuts connections
│   │   └── Offline               the model hub cannot be reached at all
│   └── Draining                  the server is shutting down
├── EngineFailure                 an accepted request was lost
│   ├── EngineCrashed             the worker process ended
│   ├── EngineStalled             the worker made no progress and was terminated
│   └── DeadlineExceeded          the request exceeded the time limit
├── SettingsError                 a setting, flag or configuration file is wrong
└── ProtocolError                 a frame on the worker pipe broke the protocol

Codes are stable and independent of transport: each dialect maps them to its own status and envelope.
`payload()` and `error_from_payload()` carry an error over the worker pipe.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, ClassVar, Final, Self


class JanServeError(Exception):
    """Base class. `message` is for people; `code` is stable; `param` names the request field at fault."""

    code: ClassVar[str] = "internal_error"

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param

    def payload(self) -> dict[str, Any]:
        """The constructor arguments that rebuild this error at the other end of the pipe: each is an attribute too."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    @classmethod
    def restore(cls, payload: dict[str, Any]) -> Self:
        """Inverse of `payload()`. Ignores keys that are not constructor parameters."""
        parameters = inspect.signature(cls).parameters
        return cls(**{name: value for name, value in payload.items() if name in parameters})


class InvalidRequest(JanServeError):
    """The request is wrong: retrying it unchanged cannot succeed."""

    code = "invalid_request"

    def about(self, field: str) -> Self:
        """This error, with `field` as its `param` and at the beginning of its message."""
        self.param = field
        self.message = f"{field}: {self.message.removeprefix(f'{field}: ')}"
        return self


class InvalidJson(InvalidRequest):
    """A body that is not JSON (RFC 8259), is not UTF-8, or is nested too deeply."""

    code = "invalid_json"


LONGER_CONTEXT: Final = (
    "Shorten the prompt, set grow_context = true (--grow-context), or start the server with a larger --n-ctx."
)


class ContextLengthExceeded(InvalidRequest):
    """The prompt, plus the requested completion, does not fit the context. Lengths are in tokens.

    item: index of the input among several. at_least: the prompt was not read to its end, and may have more.
    remedy: what can be done, in sentences; None: what can be done where the context does not grow.
    """

    code = "context_length_exceeded"

    def __init__(
        self,
        n_prompt: int,
        n_ctx: int,
        *,
        max_tokens: int | None = None,
        param: str | None = "messages",
        item: int | None = None,
        at_least: bool = False,
        remedy: str | None = None,
    ) -> None:
        self.length = f"at least {n_prompt}" if at_least else str(n_prompt)
        self.remedy = remedy if remedy is not None else LONGER_CONTEXT if item is None else ""
        super().__init__(
            f"The prompt has {self.length} tokens, and the context of this model holds {n_ctx} tokens"
            f" including the answer. {self.remedy}"
            if item is None
            else f"{param}: item {item} has {self.length} tokens, and this model reads {n_ctx} at most",
            param=param,
        )
        self.n_prompt = n_prompt
        self.n_ctx = n_ctx
        self.max_tokens = max_tokens
        self.item = item
        self.at_least = at_least

    @property
    def advice(self) -> str:
        """The remedy, in a text whose numbers clients parse: there no word can say that a number is the least."""
        unread = "The prompt was not read to its end: it has more tokens. " if self.at_least else ""
        return f"{unread}{self.remedy}".rstrip()

    @property
    def which(self) -> str:
        """A prefix for a dialect's message that names the input; empty if there is only one."""
        return "" if self.item is None else f"{self.param}: item {self.item}: "


class UnsupportedContent(InvalidRequest):
    """The model cannot read a content part. Nothing was fetched or opened."""

    code = "unsupported_content"


class InvalidImage(InvalidRequest):
    """An image of the request is damaged, of another format, cannot be fetched, or exceeds a limit."""

    code = "invalid_image"


class InvalidAudio(InvalidRequest):
    """A sound of the request is damaged, of another format, or exceeds a limit."""

    code = "invalid_audio"


class InvalidDocument(InvalidRequest):
    """A file of the request is damaged, encrypted, without text, of another format, or exceeds a limit."""

    code = "invalid_document"


class UnsupportedOperation(InvalidRequest):
    """The model does not support the route's operation."""

    code = "unsupported_operation"


class AdapterNotFound(InvalidRequest):
    """The model has no such LoRA adapter. known: the adapters it has."""

    code = "adapter_not_found"

    def __init__(
        self, adapter: str, model: str, known: Sequence[str] = (), *, param: str | None = "model"
    ) -> None:
        has = f"it has {', '.join(known)}" if known else "it has none"
        super().__init__(f"The model `{model}` has no LoRA adapter `{adapter}`; {has}.", param=param)
        self.adapter = adapter
        self.model = model
        self.known = tuple(known)


class TemplateError(InvalidRequest):
    """The chat template raised an error, could not be compiled, or exceeded a limit."""

    code = "template_error"


class InvalidGrammar(InvalidRequest):
    """A GBNF text does not parse, matches no finite text, or exceeds a limit."""

    code = "invalid_grammar"

    def __init__(self, reason: str, line: int | None = None, *, param: str | None = "grammar") -> None:
        super().__init__(reason if line is None else f"line {line}: {reason}", param=param)
        self.reason = reason
        self.line = line


class InvalidSchema(InvalidRequest):
    """Not a JSON Schema. pointer: JSON Pointer (RFC 6901) to the mistake."""

    code = "invalid_schema"

    def __init__(self, pointer: str, reason: str, *, param: str | None = "response_format") -> None:
        super().__init__(f"invalid JSON Schema at {pointer or '/'}: {reason}", param=param)
        self.pointer = pointer
        self.reason = reason


class UnsupportedSchema(InvalidRequest):
    """A valid JSON Schema cannot be enforced exactly: it is rejected rather than approximated."""

    code = "unsupported_schema"

    def __init__(
        self, pointer: str, keyword: str, reason: str, *, param: str | None = "response_format"
    ) -> None:
        super().__init__(
            f"unsupported JSON Schema keyword {keyword!r} at {pointer or '/'}: {reason}", param=param
        )
        self.pointer = pointer
        self.keyword = keyword
        self.reason = reason

    def place(self, pointer: str) -> None:
        """Name the place, unless one below the root is named already."""
        if not self.pointer:
            UnsupportedSchema.__init__(self, pointer, self.keyword, self.reason, param=self.param)


class UnsupportedPattern(InvalidRequest):
    """A regular expression is malformed or not regular. position: in characters, from 0."""

    code = "unsupported_pattern"

    def __init__(self, position: int, reason: str, *, param: str | None = "response_format") -> None:
        super().__init__(f"unsupported regular expression at character {position}: {reason}", param=param)
        self.position = position
        self.reason = reason


class GrammarTooComplex(InvalidRequest):
    """A constraint exceeds the time, rules or nesting that one request may use.

    pointer: JSON Pointer to the part of a schema that does; None for what is no schema.
    """

    code = "grammar_too_complex"

    def __init__(self, reason: str, *, pointer: str | None = None, param: str | None = None) -> None:
        where = "" if pointer is None else f"JSON Schema at {pointer or '/'}: "
        super().__init__(where + reason, param=param)
        self.pointer = pointer
        self.reason = reason

    def place(self, pointer: str) -> None:
        """Name the place, unless one is named already."""
        if self.pointer is None:
            GrammarTooComplex.__init__(self, self.reason, pointer=pointer, param=self.param)


class InvalidState(InvalidRequest):
    """A sequence state is damaged, incomplete, or made by another model, cache type or version."""

    code = "invalid_state"


class ModelNotFound(JanServeError):
    """There is no model of that name. near: similar names. can_pull: the catalogue has it."""

    code = "model_not_found"

    def __init__(
        self, name: str, near: Sequence[str] = (), *, can_pull: bool = False, param: str | None = "model"
    ) -> None:
        self.remedy = f"`jan-serve pull {name}` downloads it." if can_pull else ""
        similar = f"Did you mean {', '.join(near)}?" if near else ""
        hint = " ".join(filter(None, (similar, self.remedy))) or "`jan-serve ls` lists the models."
        super().__init__(f"The model `{name}` does not exist{' here' * can_pull}. {hint}", param=param)
        self.name = name
        self.near = tuple(near)
        self.can_pull = can_pull


class ModelInUse(JanServeError):
    """Running or waiting requests hold the model, so its file cannot be deleted."""

    code = "model_in_use"


class InvalidModel(JanServeError):
    """The file is damaged, is not a GGUF, or cannot be served."""

    code = "invalid_model"


class HubError(JanServeError):
    """The hub's response cannot be used: an unexpected status, an invalid listing, a rejected redirect."""

    code = "hub_error"


class HubNotFound(HubError):
    """The hub has no such repository, revision, file or quantisation."""

    code = "hub_not_found"


class HubAccessDenied(HubError):
    """The hub requires a token, another token, or an accepted licence."""

    code = "hub_access_denied"


class DigestMismatch(HubError):
    """A downloaded file differs from the hub's listing. want, got: SHA-256 digests, or sizes in bytes."""

    code = "digest_mismatch"

    def __init__(self, file: str, want: str, got: str, *, param: str | None = None) -> None:
        super().__init__(f"{file} is not what the hub lists: want {want}, got {got}.", param=param)
        self.file = file
        self.want = want
        self.got = got


class StoreError(JanServeError):
    """The models folder or a file in it cannot be read or written; the message has the system's reason."""

    code = "store_error"


class InsufficientStorage(StoreError):
    """The disk has too little free space. Existing files are unchanged."""

    code = "insufficient_storage"


class JournalUnusable(StoreError):
    """Another server has the journal, or a newer version wrote it. The message names no folder."""

    code = "journal_unusable"


class Unavailable(JanServeError):
    """Cannot be served now. retry_after: seconds; None if waiting does not help."""

    code = "unavailable"

    def __init__(self, message: str, *, retry_after: float | None = 1.0, param: str | None = None) -> None:
        super().__init__(message, param=param)
        self.retry_after = retry_after


class Overloaded(Unavailable):
    code = "overloaded"


class ModelFailed(Unavailable):
    """The model did not load, or its worker crashed too often; the message has the worker's last output."""

    code = "model_failed"


class InsufficientMemory(Unavailable):
    """The model and its context need more memory than is free. Both sizes are None if unknown."""

    code = "insufficient_memory"

    def __init__(
        self,
        message: str,
        *,
        retry_after: float | None = 1.0,
        param: str | None = None,
        needed_bytes: int | None = None,
        available_bytes: int | None = None,
    ) -> None:
        super().__init__(message, retry_after=retry_after, param=param)
        self.needed_bytes = needed_bytes
        self.available_bytes = available_bytes


class Asleep(Unavailable):
    """The server released its memory on request, and serves again once it is woken."""

    code = "asleep"


class PeerFailed(Unavailable):
    """Another server that a request needs rejected the connection, closed it or could not be reached."""

    code = "peer_failed"


class HubUnavailable(Unavailable):
    """The hub did not respond, or closed the connection, in every attempt; the message has the last reason."""

    code = "hub_unavailable"


class Offline(HubUnavailable):
    """No connection to the hub: no network, no DNS, or nothing listens there."""

    code = "offline"


class Draining(Unavailable):
    """The server is shutting down and accepts no new requests."""

    code = "draining"


class EngineFailure(JanServeError):
    """An accepted request was lost; a retry may succeed."""

    code = "engine_failure"


class EngineCrashed(EngineFailure):
    """The worker process ended while it held the request."""

    code = "engine_crashed"


class EngineStalled(EngineFailure):
    """The worker made no progress within the limit and was terminated."""

    code = "engine_stalled"


class DeadlineExceeded(EngineFailure):
    """The request ran longer than `request_timeout`."""

    code = "deadline_exceeded"


class SettingsError(JanServeError):
    """A setting has a wrong value; the message names its source."""

    code = "settings_error"


class ProtocolError(JanServeError):
    """A frame on the worker pipe is too large, truncated or malformed."""

    code = "protocol_error"


def _subclasses(root: type[JanServeError]) -> dict[str, type[JanServeError]]:
    """Classes by code. A subclass without its own code is private to its module and crosses no pipe."""
    found: dict[str, type[JanServeError]] = {root.code: root} if "code" in vars(root) else {}
    for child in root.__subclasses__():
        found.update(_subclasses(child))
    return found


def is_temporary(code: str) -> bool:
    """Whether the error with this code is Unavailable: the same request may succeed later, or at another server."""
    return issubclass(_subclasses(JanServeError).get(code, JanServeError), Unavailable)


def error_from_payload(code: str, payload: dict[str, Any]) -> JanServeError:
    """Rebuild an error from its `code` and `payload()`. An unknown code gives the base class."""
    kind = _subclasses(JanServeError).get(code, JanServeError)
    return kind.restore(payload)


def copy_error(error: JanServeError) -> JanServeError:
    """An equal error that has not been raised: one object raised in several tasks collects their tracebacks."""
    return error_from_payload(error.code, error.payload())
