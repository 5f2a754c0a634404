"""HTTP client of a running server; every failure becomes a CommandError."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from http import HTTPStatus
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self, cast
from urllib.parse import urlsplit

from jan_serve import __version__
from jan_serve.cli.errors import FAILED, NO_SERVER, WRONG_USE, CommandError, WrongUse, advice
from jan_serve.config import ServerAddress
from jan_serve.core.hosts import is_loopback
from jan_serve.errors import ModelNotFound

if TYPE_CHECKING:
    import httpx2

_CONNECT_S: Final = 5.0
_READ_S: Final = 30.0
_LOST_LINES: Final = 5
"""How often a stream is taken up again, each time after one more _BACK_S."""
_BACK_S: Final = 1.0
_MAX_ERROR_BYTES: Final = 1 << 20
_HEALTH_FIELDS: Final = {"status", "version", "models"}
_LOG_HINT: Final = "`jan-serve logs` shows what it wrote."


Program = Literal["server", "proxy"]

_STARTS: Final[dict[Program, str]] = {"server": "jan-serve", "proxy": "jan-serve proxy"}


class NoServer(CommandError):
    def __init__(self, url: str, reason: str, program: Program = "server") -> None:
        super().__init__(
            f"no {program} answers at {url} ({reason})",
            f"Start one with `{_STARTS[program]}` in another terminal, or use --url for a {program} elsewhere.",
            NO_SERVER,
        )


class OtherProgram(WrongUse):
    """A proxy answers a command for servers, or a server one for proxies."""

    def __init__(self, url: str, program: Program) -> None:
        other = "server" if program == "proxy" else "proxy"
        hints = {
            "proxy": f"`jan-serve nodes --url {url}` lists its servers; --url takes one of them.",
            "server": f"`jan-serve proxy` starts one; `jan-serve ps --url {url}` shows the server.",
        }
        super().__init__(f"{url} is a jan-serve {program}, and this command needs a {other}", hints[program])


class UnknownModel(WrongUse):
    """The server has no model of that name. Its message may give the remedy."""

    def __init__(self, message: str) -> None:
        known = "jan-serve ls" in message or "jan-serve pull" in message
        super().__init__(message, None if known else "`jan-serve ls` lists the models.")


class ChatChanged(CommandError):
    """The server has another version of a chat, or has deleted it."""


class ServerClient:
    """Every method blocks, and raises CommandError on any failure. program: what should answer."""

    def __init__(self, address: ServerAddress, program: Program = "server") -> None:
        import httpx2  # takes 0.1 s, which commands without a server save

        self._address = address
        self._wanted: Program = program
        headers = {"User-Agent": f"jan-serve/{__version__}"}
        if address.key is not None:
            headers["Authorization"] = f"Bearer {address.key.get_secret_value()}"
        self._patient = httpx2.Timeout(None, connect=_CONNECT_S)
        self._client = httpx2.Client(
            base_url=address.url,
            headers=headers,
            timeout=httpx2.Timeout(_READ_S, connect=_CONNECT_S),
            # A proxy from the environment does not apply to this machine.
            trust_env=not is_loopback(urlsplit(address.url).hostname or ""),
            # Loading the certificates takes longer than a request.
            verify=address.url.startswith("https:"),
        )

    @property
    def url(self) -> str:
        return self._address.url

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()

    def check(self) -> None:
        """Raises CommandError unless a jan-serve answers."""
        if not self.get("/health").keys() >= _HEALTH_FIELDS:
            raise self._unexpected("unknown form of /health")

    def get(
        self, path: str, params: Mapping[str, str] | None = None, *, patient: bool = False
    ) -> dict[str, Any]:
        """The JSON object of the answer. patient: wait without a limit instead of _READ_S."""
        timeout = self._patient if patient else self._client.timeout
        return self._parsed(self._read("GET", path, params=params, timeout=timeout))

    def content(self, path: str) -> bytes:
        """The bytes of an answer."""
        return self._read("GET", path)

    def delete(self, path: str) -> None:
        self._read("DELETE", path)

    def post(self, path: str, body: Mapping[str, Any], method: str = "POST") -> dict[str, Any]:
        """Send a body and read the answer, without a time limit: loading or generating may take long."""
        return self._parsed(self._read(method, path, json=dict(body), timeout=self._patient))

    def put(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return self.post(path, body, "PUT")

    def upload(self, path: str, name: str, content: bytes, fields: Mapping[str, str]) -> dict[str, Any]:
        """Send a form with a file, without a time limit."""
        files = {"file": (name, content, "application/octet-stream")}
        return self._parsed(self._read("POST", path, data=dict(fields), files=files, timeout=self._patient))

    def _read(self, method: str, path: str, **details: Any) -> bytes:
        with self._explained(), self._client.stream(method, path, **details) as response:
            self._check(response)
            return response.read()

    def events(
        self, path: str, body: Mapping[str, Any] | None = None, params: Mapping[str, str] | None = None
    ) -> Generator[dict[str, Any]]:
        """The JSON objects of an event stream; POST with a body, GET without. Close the generator to stop.

        A stream whose events have ids is taken up again where its line broke. Raises CommandError for an error event
        and for an interrupted stream.
        """
        import httpx2

        last = ""
        for lost in range(_LOST_LINES + 1):
            try:
                for event_id, event in self._events(path, body, params, last):
                    last = event_id
                    yield event
                return
            except httpx2.TransportError:
                if lost == _LOST_LINES or not last:
                    with self._explained():
                        raise
                time.sleep(_BACK_S * lost)

    def _events(
        self, path: str, body: Mapping[str, Any] | None, params: Mapping[str, str] | None, last: str
    ) -> Generator[tuple[str, dict[str, Any]]]:
        """The events behind one, with their ids."""
        method = "GET" if body is None else "POST"
        content = None if body is None else dict(body)
        headers = {"Last-Event-ID": last} if last else {}
        request = self._client.stream(
            method, path, json=content, params=params, headers=headers, timeout=self._patient
        )
        with request as response:
            self._check(response)
            if not response.headers.get("content-type", "").startswith("text/event-stream"):
                raise self._unexpected("not an event stream")
            for data, event_id in _event_data(response.iter_bytes()):
                if data == "[DONE]":
                    return
                event = self._parsed(data)
                if isinstance(event.get("error"), dict):
                    wrong = event["error"].get("type") == "invalid_request_error"
                    raise self._failure(400 if wrong else 500, event, {})
                yield event_id or last, event

    def _parsed(self, text: str | bytes) -> dict[str, Any]:
        try:
            content = json.loads(text)
        except (ValueError, RecursionError):
            raise self._unexpected("not JSON") from None
        if not isinstance(content, dict):
            raise self._unexpected("not a JSON object")
        return cast(dict[str, Any], content)

    def _check(self, response: httpx2.Response) -> None:
        """Raises CommandError unless the status is 2xx."""
        if response.is_success:
            return
        content = bytearray()
        for piece in response.iter_bytes():
            content += piece
            if len(content) > _MAX_ERROR_BYTES:
                break
        try:
            body = json.loads(content)
        except (ValueError, RecursionError):
            body = None
        known = cast(dict[str, Any], body) if isinstance(body, dict) else {}
        raise self._failure(response.status_code, known, response.headers)

    def _failure(self, status: int, body: Mapping[str, Any], headers: Mapping[str, str]) -> CommandError:
        error = body if body.get("object") == "error" else body.get("error")
        details: dict[str, Any] = cast(dict[str, Any], error) if isinstance(error, dict) else {}
        message, code = details.get("message"), details.get("code")
        if status == HTTPStatus.UNAUTHORIZED:
            return self._wrong_key()
        if code in ("not_found", HTTPStatus.NOT_FOUND):
            return self._no_route(status)
        if not isinstance(message, str):
            return self._unexpected(f"HTTP status {status}")
        if code == ModelNotFound.code:
            return UnknownModel(message)
        if code in ("chat_conflict", "chat_deleted"):
            return ChatChanged(message)
        next_step, exit_status = _next_step(status, str(code), headers)
        return CommandError(message, next_step, exit_status)

    def _wrong_key(self) -> CommandError:
        if self._address.key is None:
            hint = "Set JAN_SERVE_API_KEY, or api_keys in the configuration file."
            return WrongUse(f"the server at {self.url} requires an API key", hint)
        return WrongUse(
            f"the server at {self.url} rejects the API key from {self._address.key_origin}",
            "`jan-serve config` shows the source of each setting; JAN_SERVE_API_KEY overrides the file.",
        )

    def _no_route(self, status: int) -> CommandError:
        """Another program of ours may answer."""
        import httpx2

        try:
            body = self._client.get("/health", timeout=_CONNECT_S).json()
        except (httpx2.HTTPError, ValueError, RecursionError):
            body = None
        if isinstance(body, dict) and body.keys() >= _HEALTH_FIELDS:
            program: Program = "proxy" if "nodes" in body else "server"
            if program != self._wanted:
                return OtherProgram(self.url, program)
        return self._unexpected(f"HTTP status {status}")

    def _unexpected(self, answer: str) -> CommandError:
        return CommandError(
            f"{self.url} answers, but not like this version of jan-serve ({answer})",
            "Another program or version may use the port; --url chooses another address.",
            NO_SERVER,
        )

    @contextlib.contextmanager
    def _explained(self) -> Generator[None]:
        import httpx2

        try:
            yield
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            timed_out = isinstance(error, httpx2.ConnectTimeout)
            reason = "the connection timed out" if timed_out else _reason(error)
            raise NoServer(self.url, reason, self._wanted) from None
        except httpx2.TimeoutException:
            raise CommandError(
                f"the server at {self.url} did not answer within {_READ_S:g} s", _LOG_HINT
            ) from None
        except httpx2.TransportError as error:
            raise CommandError(
                f"the server at {self.url} broke the connection: {_reason(error)}",
                "It may have stopped: `jan-serve ps` shows whether it runs.",
                NO_SERVER,
            ) from None


def _reason(error: Exception) -> str:
    """The message of the system, without the errno prefix of Python."""
    text = str(error) or type(error).__name__
    return text.split("] ", 1)[1] if text.startswith("[Errno") and "] " in text else text


def _next_step(status: int, code: str, headers: Mapping[str, str]) -> tuple[str | None, int]:
    known = advice(code)
    if known is not None:
        return known
    wait = headers.get("retry-after")
    if status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE) and wait:
        return f"Try again in {wait} s.", FAILED
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status == HTTPStatus.TOO_MANY_REQUESTS:
        return _LOG_HINT, FAILED
    return None, WRONG_USE


def _event_data(pieces: Iterable[bytes]) -> Iterator[tuple[str, str]]:
    """Data and id of each event of a stream (WHATWG HTML, section 9.2.6), without an incomplete last event."""
    data: list[bytes] = []
    event_id = b""
    for line in _lines(pieces):
        if line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
        elif line.startswith(b"id:"):
            event_id = line[3:].removeprefix(b" ")
        elif not line and data:
            yield b"\n".join(data).decode("utf-8", "replace"), event_id.decode("utf-8", "replace")
            data = []


def _lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Lines that end with LF or CRLF. Those of httpx also end at U+2028 and others, which JSON may contain."""
    rest = bytearray()
    for piece in pieces:
        *whole, last = piece.split(b"\n")
        for line in whole:
            yield (bytes(rest) + line).removesuffix(b"\r")
            rest.clear()
        rest += last
