"""The exception tree of jan-serve, from JanServeError down.

Codes are stable and independent of transport: each dialect maps them to its own status and envelope.
`payload()` and `error_from_payload()` carry an error over the worker pipe. `shortage` tells what a process lacks for a
moment (memory, threads, file descriptors) from other failures, and `public_text` is a message without what only the
owner of the machine may read.
"""

from __future__ import annotations

import errno
import inspect
import re
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final, Self


class JanServeError(Exception):
    """Base class. `message` is for people; `code` is stable; `param` names the request field at fault."""

    code: ClassVar[str] = "internal_error"
    by_code: ClassVar[dict[str, type[JanServeError]]] = {}

    def __init_subclass__(cls, *, code: str | None = None) -> None:
        """code: None for a class that is private to its module and crosses no pipe."""
        if code is not None:
            cls.code = code
            cls.by_code[code] = cls

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param

    def payload(self) -> dict[str, Any]:
        """The constructor arguments that rebuild this error at the other end of the pipe: each is an attribute too."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}


class InvalidRequest(JanServeError, code="invalid_request"):
    """The request is wrong: retrying it unchanged cannot succeed."""

    def about(self, field: str) -> Self:
        """This error, with `field` as its `param` and at the beginning of its message."""
        self.param = field
        self.message = f"{field}: {self.message.removeprefix(f'{field}: ')}"
        self.args = (self.message,)
        return self


class InvalidJson(InvalidRequest, code="invalid_json"):
    """A body that is not JSON (RFC 8259), is not UTF-8, or is nested too deeply."""


LONGER_CONTEXT: Final = (
    "Shorten the prompt, set grow_context = true (--grow-context), or start the server with a larger --n-ctx."
)


class ContextLengthExceeded(InvalidRequest, code="context_length_exceeded"):
    """The prompt, plus the requested completion, does not fit the context. Lengths are in tokens.

    item: index of the input among several. at_least: the prompt was not read to its end, and may have more.
    remedy: what can be done, in sentences; None: what can be done where the context does not grow.
    """

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


class UnsupportedContent(InvalidRequest, code="unsupported_content"):
    """The model cannot read a content part. Nothing was fetched or opened."""


class InvalidImage(InvalidRequest, code="invalid_image"):
    """An image of the request is damaged, of another format, cannot be fetched, or exceeds a limit."""


class InvalidAudio(InvalidRequest, code="invalid_audio"):
    """A sound of the request is damaged, of another format, or exceeds a limit."""


class InvalidDocument(InvalidRequest, code="invalid_document"):
    """A file of the request is damaged, encrypted, without text, of another format, or exceeds a limit."""


class UnsupportedOperation(InvalidRequest, code="unsupported_operation"):
    """The model does not support the route's operation."""


class AdapterNotFound(InvalidRequest, code="adapter_not_found"):
    """The model has no such LoRA adapter. known: the adapters it has."""

    def __init__(
        self, adapter: str, model: str, known: Sequence[str] = (), *, param: str | None = "model"
    ) -> None:
        has = f"it has {', '.join(known)}" if known else "it has none"
        super().__init__(f"The model `{model}` has no LoRA adapter `{adapter}`; {has}.", param=param)
        self.adapter = adapter
        self.model = model
        self.known = tuple(known)


class TemplateError(InvalidRequest, code="template_error"):
    """The chat template raised an error, could not be compiled, or exceeded a limit."""


class InvalidGrammar(InvalidRequest, code="invalid_grammar"):
    """A GBNF text does not parse, matches no finite text, or exceeds a limit."""

    def __init__(self, reason: str, line: int | None = None, *, param: str | None = "grammar") -> None:
        super().__init__(reason if line is None else f"line {line}: {reason}", param=param)
        self.reason = reason
        self.line = line


class InvalidSchema(InvalidRequest, code="invalid_schema"):
    """Not a JSON Schema. pointer: JSON Pointer (RFC 6901) to the mistake."""

    def __init__(self, pointer: str, reason: str, *, param: str | None = "response_format") -> None:
        super().__init__(f"invalid JSON Schema at {pointer or '/'}: {reason}", param=param)
        self.pointer = pointer
        self.reason = reason


class UnsupportedSchema(InvalidRequest, code="unsupported_schema"):
    """A valid JSON Schema cannot be enforced exactly: it is rejected rather than approximated."""

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


class UnsupportedPattern(InvalidRequest, code="unsupported_pattern"):
    """A regular expression is malformed or not regular. position: in characters, from 0."""

    def __init__(self, position: int, reason: str, *, param: str | None = "response_format") -> None:
        super().__init__(f"unsupported regular expression at character {position}: {reason}", param=param)
        self.position = position
        self.reason = reason


class GrammarTooComplex(InvalidRequest, code="grammar_too_complex"):
    """A constraint exceeds the time, rules or nesting that one request may use.

    pointer: JSON Pointer to the part of a schema that does; None for what is no schema.
    """

    def __init__(self, reason: str, *, pointer: str | None = None, param: str | None = None) -> None:
        where = "" if pointer is None else f"JSON Schema at {pointer or '/'}: "
        super().__init__(where + reason, param=param)
        self.pointer = pointer
        self.reason = reason

    def place(self, pointer: str) -> None:
        """Name the place, unless one is named already."""
        if self.pointer is None:
            GrammarTooComplex.__init__(self, self.reason, pointer=pointer, param=self.param)


class InvalidState(InvalidRequest, code="invalid_state"):
    """A sequence state is damaged, incomplete, or made by another model, cache type or version."""


class ModelNotFound(JanServeError, code="model_not_found"):
    """There is no model of that name. near: similar names. can_pull: the catalogue has it."""

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


class ModelInUse(JanServeError, code="model_in_use"):
    """Running or waiting requests hold the model, so its file cannot be deleted."""


class InvalidModel(JanServeError, code="invalid_model"):
    """The file is damaged, is not a GGUF, or cannot be served."""


class HubError(JanServeError, code="hub_error"):
    """The hub's response cannot be used: an unexpected status, an invalid listing, a rejected redirect."""


class HubNotFound(HubError, code="hub_not_found"):
    """The hub has no such repository, revision, file or quantisation."""


class HubAccessDenied(HubError, code="hub_access_denied"):
    """The hub requires a token, another token, or an accepted licence."""


class DigestMismatch(HubError, code="digest_mismatch"):
    """A downloaded file differs from the hub's listing. want, got: SHA-256 digests, or sizes in bytes."""

    def __init__(self, file: str, want: str, got: str, *, param: str | None = None) -> None:
        super().__init__(f"{file} is not what the hub lists: want {want}, got {got}.", param=param)
        self.file = file
        self.want = want
        self.got = got


class StoreError(JanServeError, code="store_error"):
    """The models folder or a file in it cannot be read or written; the message has the system's reason."""


class InsufficientStorage(StoreError, code="insufficient_storage"):
    """The disk has too little free space. Existing files are unchanged."""


class JournalUnusable(StoreError, code="journal_unusable"):
    """Another server has the journal, or a newer version wrote it. The message names no folder."""


class Unavailable(JanServeError, code="unavailable"):
    """Cannot be served now. retry_after: seconds; None if waiting does not help."""

    def __init__(self, message: str, *, retry_after: float | None = 1.0, param: str | None = None) -> None:
        super().__init__(message, param=param)
        self.retry_after = retry_after


class Overloaded(Unavailable, code="overloaded"):
    """The queue is full."""


class ModelFailed(Unavailable, code="model_failed"):
    """The model did not load, or its worker crashed too often; the message has the worker's last output."""


class InsufficientMemory(Unavailable, code="insufficient_memory"):
    """The model and its context need more memory than is free. Both sizes are None if unknown."""

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


class Asleep(Unavailable, code="asleep"):
    """The server released its memory on request, and serves again once it is woken."""


class PeerFailed(Unavailable, code="peer_failed"):
    """Another server that a request needs rejected the connection, closed it or could not be reached."""


class HubUnavailable(Unavailable, code="hub_unavailable"):
    """The hub did not respond, or closed the connection, in every attempt; the message has the last reason."""


class Offline(HubUnavailable, code="offline"):
    """No connection to the hub: no network, no DNS, or nothing listens there."""


class Draining(Unavailable, code="draining"):
    """The server is shutting down and accepts no new requests."""


class EngineFailure(JanServeError, code="engine_failure"):
    """An accepted request was lost; a retry may succeed."""


class EngineCrashed(EngineFailure, code="engine_crashed"):
    """The worker process ended while it held the request."""


class EngineStalled(EngineFailure, code="engine_stalled"):
    """The worker made no progress within the limit and was terminated."""


class DeadlineExceeded(EngineFailure, code="deadline_exceeded"):
    """The request ran longer than `request_timeout`."""


class SettingsError(JanServeError, code="settings_error"):
    """A setting has a wrong value; the message names its source."""


class ProtocolError(JanServeError, code="protocol_error"):
    """A frame on the worker pipe is too large, truncated or malformed."""


def is_temporary(code: str) -> bool:
    """Whether the error with this code is Unavailable: the same request may succeed later, or at another server."""
    return issubclass(JanServeError.by_code.get(code, JanServeError), Unavailable)


def error_from_payload(code: str, payload: dict[str, Any]) -> JanServeError:
    """Rebuild an error. Unknown keys are ignored; an unknown code gives the base class."""
    kind = JanServeError.by_code.get(code, JanServeError)
    parameters = inspect.signature(kind).parameters
    return kind(**{name: value for name, value in payload.items() if name in parameters})


def copy_error(error: JanServeError) -> JanServeError:
    """An equal error that has not been raised: one object raised in several tasks collects their tracebacks."""
    return error_from_payload(error.code, error.payload())


NO_MEMORY: Final = "The server has no memory for this now."

_OF_IMPORTS: Final = re.compile(
    r"failed to map segment|cannot allocate memory|cannot create shared object", re.I
)
"""Messages of glibc's loader of shared libraries."""


def ran_out_of_memory(error: BaseException) -> bool:
    """Whether this error, or one that led to it, says that there is no memory for objects, a library or a thread."""
    return any(map(_is_of_memory, _causes(error)))


def shortage(error: BaseException) -> Unavailable | None:
    """The error for a request that met a lack of memory, threads or file descriptors. None for another failure."""
    if ran_out_of_memory(error):
        return InsufficientMemory(NO_MEMORY)
    for cause in _causes(error):
        if isinstance(cause, OSError) and cause.errno in (errno.EMFILE, errno.ENFILE):
            return Unavailable(f"The server cannot open more files now ({cause.strerror}).")
    return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error, and those that led to it."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _is_of_memory(error: BaseException) -> bool:
    match error:
        case MemoryError():
            return True
        case OSError():
            return error.errno == errno.ENOMEM
        case ImportError():
            return _OF_IMPORTS.search(str(error)) is not None
        case RuntimeError():
            return str(error) == "can't start new thread"
        case _:
            return False


_ABSOLUTE_PATH = re.compile(r"(?:[A-Za-z]:)?(?:[/\\][^\s/\\:'\",;()<>]+)+[/\\]([^\s/\\:'\",;()<>]+)")
_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")


def public_text(text: str) -> str:
    """The text with the names of files in place of their paths, and without addresses in memory."""
    return _ADDRESS.sub("<address>", _ABSOLUTE_PATH.sub(r"\1", text)).strip()
