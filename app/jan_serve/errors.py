"""Every exception that jan-serve raises on purpose, as one tree.

JanServeError
├── InvalidRequest                what the caller sent cannot be served as it stands
│   ├── InvalidJson               the body is not JSON, or breaks a limit of its form
│   ├── ContextLengthExceeded     prompt, or prompt plus completion, does not fit the context
│   ├── UnsupportedContent        a content part (image, audio) that the model cannot read
│   ├── UnsupportedOperation      the model cannot do this (embeddings of …, infill without FIM tokens)
│   ├── AdapterNotFound           the model has no LoRA adapter of that name
│   ├── TemplateError             the chat template raised, or broke a limit
│   ├── InvalidGrammar            a GBNF text that does not parse or breaks a limit
│   ├── InvalidSchema             not a JSON Schema
│   ├── UnsupportedSchema         a JSON Schema that cannot be enforced exactly
│   ├── UnsupportedPattern        a regular expression that cannot be enforced exactly
│   ├── InvalidState              the state of a sequence from another server is damaged or of another model
│   └── GrammarTooComplex         a constraint over the time, rule or nesting budget
├── ModelNotFound                 no such model here
├── ModelInUse                    what was asked for would take the model from requests that hold it
├── InvalidModel                  the file is not a GGUF that can be served
├── HubError                      the model hub answered, and not with what was asked for
│   ├── HubNotFound               no such repository, revision or file there
│   ├── HubAccessDenied           gated, private, or the token is refused
│   └── DigestMismatch            what was downloaded is not what the hub had promised
├── StoreError                    the models folder cannot be read or written
│   └── InsufficientStorage       the disk has no room for the download
├── Unavailable                   true now, may change: retry after a while
│   ├── Overloaded                the queue is full
│   ├── ModelFailed               the model crashed too often, or did not load
│   ├── InsufficientMemory        model plus context do not fit the free memory
│   ├── Asleep                    the server was put to sleep, and has to be woken
│   ├── PeerFailed                another server did not give what a request needs
│   ├── HubUnavailable            the model hub is overloaded, stalls or cuts connections
│   │   └── Offline               the model hub cannot be reached at all
│   └── Draining                  the server is shutting down
├── EngineFailure                 a request that had been accepted was lost
│   ├── EngineCrashed             the worker process ended
│   ├── EngineStalled             the worker made no progress and was ended
│   └── DeadlineExceeded          the request ran longer than the server allows
├── SettingsError                 a setting, flag or configuration file is wrong
└── ProtocolError                 a frame on the worker pipe broke the protocol

Codes are stable and carry no transport: each dialect maps them to its own status and envelope.
`payload()` and `from_payload()` carry an error over the worker pipe.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, ClassVar, Self


class JanServeError(Exception):
    """Base of the tree. `message` is for people; `code` is stable; `param` names the request field at fault."""

    code: ClassVar[str] = "internal_error"

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param

    def payload(self) -> dict[str, Any]:
        """The attributes that rebuild this error on the other side of the pipe."""
        return {"message": self.message, "param": self.param}

    @classmethod
    def restore(cls, payload: dict[str, Any]) -> Self:
        """Inverse of `payload()`, whose keys are names of the constructor's parameters; others are passed over."""
        taken = inspect.signature(cls).parameters
        return cls(**{name: value for name, value in payload.items() if name in taken})


class InvalidRequest(JanServeError):
    """The request is wrong: resending it unchanged cannot succeed."""

    code = "invalid_request"


class InvalidJson(InvalidRequest):
    """A body that is not JSON (RFC 8259), is not UTF-8, or is nested too deeply.

    place: line (from 1) and column (in bytes) of what is wrong, where that is known.
    """

    code = "invalid_json"

    def __init__(
        self, message: str, *, param: str | None = None, place: tuple[int, int] | None = None
    ) -> None:
        super().__init__(message, param=param)
        self.place = place


class ContextLengthExceeded(InvalidRequest):
    """The prompt (plus the completion that was asked for) does not fit the context. Lengths are in tokens.

    item: which of several inputs to embed it is, from 0.
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
    ) -> None:
        super().__init__(
            f"The prompt has {n_prompt} tokens, and the context of this model holds {n_ctx} tokens"
            " including the answer. Shorten the prompt, or start the server with a larger --n-ctx."
            if item is None
            else f"{param}: item {item} has {n_prompt} tokens, and this model embeds {n_ctx} at most",
            param=param,
        )
        self.n_prompt = n_prompt
        self.n_ctx = n_ctx
        self.max_tokens = max_tokens
        self.item = item

    @property
    def which(self) -> str:
        """Names the input in front of a dialect's own words; empty where there is only one."""
        return "" if self.item is None else f"{self.param}: item {self.item}: "

    def payload(self) -> dict[str, Any]:
        return {
            "n_prompt": self.n_prompt,
            "n_ctx": self.n_ctx,
            "max_tokens": self.max_tokens,
            "param": self.param,
            "item": self.item,
        }


class UnsupportedContent(InvalidRequest):
    """A content part that this model cannot read. Nothing was fetched or opened."""

    code = "unsupported_content"


class UnsupportedOperation(InvalidRequest):
    """The model cannot do what the route does."""

    code = "unsupported_operation"


class AdapterNotFound(InvalidRequest):
    """The model has no such LoRA adapter; `known` are those that it has."""

    code = "adapter_not_found"

    def __init__(
        self, adapter: str, model: str, known: Sequence[str] = (), *, param: str | None = "model"
    ) -> None:
        has = f"it has {', '.join(known)}" if known else "it has none"
        super().__init__(f"The model `{model}` has no LoRA adapter `{adapter}`; {has}.", param=param)
        self.adapter = adapter
        self.model = model
        self.known = tuple(known)

    def payload(self) -> dict[str, Any]:
        return {
            "adapter": self.adapter,
            "model": self.model,
            "known": list(self.known),
            "param": self.param,
        }


class TemplateError(InvalidRequest):
    """The chat template raised an error of its own, could not be compiled, or broke a limit."""

    code = "template_error"


class InvalidGrammar(InvalidRequest):
    """A GBNF text that does not parse, has no finite meaning, or is larger than the limits."""

    code = "invalid_grammar"

    def __init__(self, reason: str, line: int | None = None, *, param: str | None = "grammar") -> None:
        super().__init__(reason if line is None else f"line {line}: {reason}", param=param)
        self.reason = reason
        self.line = line

    def payload(self) -> dict[str, Any]:
        return {"reason": self.reason, "line": self.line, "param": self.param}


class InvalidSchema(InvalidRequest):
    """Not a JSON Schema: `pointer` (RFC 6901) is the place, `reason` says why."""

    code = "invalid_schema"

    def __init__(self, pointer: str, reason: str, *, param: str | None = "response_format") -> None:
        super().__init__(f"invalid JSON Schema at {pointer or '/'}: {reason}", param=param)
        self.pointer = pointer
        self.reason = reason

    def payload(self) -> dict[str, Any]:
        return {"pointer": self.pointer, "reason": self.reason, "param": self.param}


class UnsupportedSchema(InvalidRequest):
    """A valid JSON Schema that cannot be enforced exactly: it is refused rather than loosened."""

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

    def payload(self) -> dict[str, Any]:
        return {"pointer": self.pointer, "keyword": self.keyword, "reason": self.reason, "param": self.param}


class UnsupportedPattern(InvalidRequest):
    """A regular expression that is malformed or not regular; `position` counts characters from 0."""

    code = "unsupported_pattern"

    def __init__(self, position: int, reason: str, *, param: str | None = "response_format") -> None:
        super().__init__(f"unsupported regular expression at character {position}: {reason}", param=param)
        self.position = position
        self.reason = reason

    def payload(self) -> dict[str, Any]:
        return {"position": self.position, "reason": self.reason, "param": self.param}


class GrammarTooComplex(InvalidRequest):
    """A constraint that would cost more time, rules or nesting than one request may use."""

    code = "grammar_too_complex"


class InvalidState(InvalidRequest):
    """The state of a sequence cannot be used here: damaged, incomplete, or made by another model, type or version."""

    code = "invalid_state"


class ModelNotFound(JanServeError):
    """No model of that name is here; `near` lists names that look like it."""

    code = "model_not_found"

    def __init__(self, name: str, near: Sequence[str] = (), *, param: str | None = "model") -> None:
        hint = f" Did you mean {', '.join(near)}?" if near else " `jan-serve ls` lists the models."
        super().__init__(f"The model `{name}` does not exist.{hint}", param=param)
        self.name = name
        self.near = tuple(near)

    def payload(self) -> dict[str, Any]:
        return {"name": self.name, "near": list(self.near), "param": self.param}


class ModelInUse(JanServeError):
    """The model is loaded for requests that run or wait, so its file cannot go."""

    code = "model_in_use"


class InvalidModel(JanServeError):
    """The file is damaged, is not a GGUF, or has an architecture that is not served."""

    code = "invalid_model"


class HubError(JanServeError):
    """The hub's answer cannot be used: an unexpected status, a senseless listing, a redirect that is not followed."""

    code = "hub_error"


class HubNotFound(HubError):
    """The hub has no such repository, revision, file or quantisation."""

    code = "hub_not_found"


class HubAccessDenied(HubError):
    """The hub wants a token, a licence to be accepted, or another token."""

    code = "hub_access_denied"


class DigestMismatch(HubError):
    """A downloaded file differs from what the hub lists. `want` and `got` are SHA-256 digests, or sizes in bytes."""

    code = "digest_mismatch"

    def __init__(self, file: str, want: str, got: str, *, param: str | None = None) -> None:
        super().__init__(f"{file} is not what the hub lists: want {want}, got {got}.", param=param)
        self.file = file
        self.want = want
        self.got = got

    def payload(self) -> dict[str, Any]:
        return {"file": self.file, "want": self.want, "got": self.got, "param": self.param}


class StoreError(JanServeError):
    """The models folder or a file in it cannot be read, written or changed; the message has the system's reason."""

    code = "store_error"


class InsufficientStorage(StoreError):
    """The disk cannot hold what was asked for. Nothing that was there before is touched."""

    code = "insufficient_storage"


class Unavailable(JanServeError):
    """Cannot be served now. `retry_after` is in seconds, None where waiting will not help."""

    code = "unavailable"

    def __init__(self, message: str, *, retry_after: float | None = 1.0, param: str | None = None) -> None:
        super().__init__(message, param=param)
        self.retry_after = retry_after

    def payload(self) -> dict[str, Any]:
        return {"message": self.message, "retry_after": self.retry_after, "param": self.param}


class Overloaded(Unavailable):
    """The queue is full."""

    code = "overloaded"


class ModelFailed(Unavailable):
    """The model did not load, or its worker crashed too often; the message carries its last words."""

    code = "model_failed"


class InsufficientMemory(Unavailable):
    """The model and its context need more memory than is free. Both figures are None where they are not known."""

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

    def payload(self) -> dict[str, Any]:
        figures = {"needed_bytes": self.needed_bytes, "available_bytes": self.available_bytes}
        return super().payload() | figures


class Asleep(Unavailable):
    """The server gave back its memory when it was told to, and serves again once it is woken."""

    code = "asleep"


class PeerFailed(Unavailable):
    """Another server refused, broke off or could not be reached while it was needed for a request."""

    code = "peer_failed"


class HubUnavailable(Unavailable):
    """The hub did not answer, or broke off, as often as we tried; the message has its last word."""

    code = "hub_unavailable"


class Offline(HubUnavailable):
    """No connection to the hub: no network, no name service, or nobody listens there."""

    code = "offline"


class Draining(Unavailable):
    """The server has been told to stop and takes no new requests."""

    code = "draining"


class EngineFailure(JanServeError):
    """An accepted request was lost; the same request may succeed when it is sent again."""

    code = "engine_failure"


class EngineCrashed(EngineFailure):
    """The worker process ended while it held the request."""

    code = "engine_crashed"


class EngineStalled(EngineFailure):
    """The worker made no progress within the limit and was ended."""

    code = "engine_stalled"


class DeadlineExceeded(EngineFailure):
    """The request ran longer than `request_timeout`."""

    code = "deadline_exceeded"


class SettingsError(JanServeError):
    """A setting has a wrong value; the message names where it came from."""

    code = "settings_error"


class ProtocolError(JanServeError):
    """A frame on the worker pipe is too large, truncated, or of an unknown shape."""

    code = "protocol_error"


def _subclasses(root: type[JanServeError]) -> dict[str, type[JanServeError]]:
    """By code. A subclass without a code of its own is a detail of its module, and crosses no pipe."""
    found: dict[str, type[JanServeError]] = {root.code: root} if "code" in vars(root) else {}
    for child in root.__subclasses__():
        found.update(_subclasses(child))
    return found


def error_from_payload(code: str, payload: dict[str, Any]) -> JanServeError:
    """Rebuild the error with this `code` from what its `payload()` returned. Unknown codes give the base class."""
    kind = _subclasses(JanServeError).get(code, JanServeError)
    return kind.restore(payload)


def copy_error(error: JanServeError) -> JanServeError:
    """An equal error that has not been raised: one object raised in several tasks collects their tracebacks."""
    return error_from_payload(error.code, error.payload())
