"""Asks the running server over HTTP, and turns everything that can go wrong on the way into a CommandError."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Generator, Iterable, Iterator, Mapping
from http import HTTPStatus
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, cast
from urllib.parse import urlsplit

from jan_serve import __version__
from jan_serve.cli.errors import FAILED, NO_SERVER, WRONG_USE, CommandError, advice
from jan_serve.config import ServerAddress
from jan_serve.core.hosts import is_loopback
from jan_serve.errors import ModelNotFound

if TYPE_CHECKING:
    import httpx2

_CONNECT_S: Final = 5.0
_READ_S: Final = 30.0
_MAX_ERROR_BYTES: Final = 1 << 20
_LOG_HINT: Final = "`jan-serve logs` shows what it wrote."


class NoServer(CommandError):
    """Nobody answers at the address."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(
            f"no server answers at {url} ({reason})",
            "`jan-serve` in another terminal starts one; --url asks one that is elsewhere.",
            NO_SERVER,
        )


class ServerConnection:
    """One server. Every method blocks, and raises CommandError when there is no good answer."""

    def __init__(self, address: ServerAddress) -> None:
        import httpx2  # takes a tenth of a second, which commands without a server do not have to spend

        self._address = address
        headers = {"User-Agent": f"jan-serve/{__version__}"}
        if address.key is not None:
            headers["Authorization"] = f"Bearer {address.key.get_secret_value()}"
        self._client = httpx2.Client(
            base_url=address.url,
            headers=headers,
            timeout=httpx2.Timeout(_READ_S, connect=_CONNECT_S),
            # A proxy of the environment is for other machines.
            trust_env=not is_loopback(urlsplit(address.url).hostname or ""),
            # Reading the certificates takes longer than a request.
            verify=address.url.startswith("https:"),
        )

    @property
    def url(self) -> str:
        """Where the server is."""
        return self._address.url

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends every request that still runs."""
        self._client.close()

    def check(self) -> None:
        """Whether a jan-serve is there."""
        if not self.get("/health").keys() >= {"status", "version", "models"}:
            raise self._stranger("its health is told in other words")

    def get(
        self, path: str, params: Mapping[str, str] | None = None, *, patient: bool = False
    ) -> dict[str, Any]:
        """The JSON object that the route answers with, within half a minute, or, if patient, whenever it comes."""
        timeout = _patient() if patient else self._client.timeout
        with self._explained(), self._client.stream("GET", path, params=params, timeout=timeout) as response:
            return self._object(response)

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """As `get`, and waits as long as it takes: for a model that is loaded, for an answer that is written."""
        with (
            self._explained(),
            self._client.stream("POST", path, json=dict(body), timeout=_patient()) as response,
        ):
            return self._object(response)

    def delete(self, path: str) -> dict[str, Any]:
        """As `get`."""
        with self._explained(), self._client.stream("DELETE", path) as response:
            return self._object(response)

    def events(
        self,
        path: str,
        body: Mapping[str, Any] | None = None,
        params: Mapping[str, str] | None = None,
    ) -> Generator[dict[str, Any]]:
        """The JSON objects of an event stream, until its end; POST with a body, GET without. Close it to stop.

        An error event ends it with CommandError, and so does a stream that breaks off.
        """
        method = "GET" if body is None else "POST"
        content = None if body is None else dict(body)
        request = self._client.stream(method, path, json=content, params=params, timeout=_patient())
        with self._explained(), request as response:
            self._check(response)
            if not response.headers.get("content-type", "").startswith("text/event-stream"):
                raise self._stranger("no event stream")
            for data in _event_data(response.iter_bytes()):
                if data == "[DONE]":
                    return
                event = self._parsed(data)
                if isinstance(event.get("error"), dict):
                    raise self._failure(_status_of(event["error"]), event, {})
                yield event

    def _object(self, response: httpx2.Response) -> dict[str, Any]:
        self._check(response)
        response.read()
        return self._parsed(response.text)

    def _parsed(self, text: str) -> dict[str, Any]:
        try:
            content = json.loads(text)
        except (ValueError, RecursionError):
            raise self._stranger("no JSON") from None
        if not isinstance(content, dict):
            raise self._stranger("another kind of JSON")
        return cast(dict[str, Any], content)

    def _check(self, response: httpx2.Response) -> None:
        """Raises CommandError for every status but 2xx."""
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
        error = body.get("error")
        details: dict[str, Any] = cast(dict[str, Any], error) if isinstance(error, dict) else {}
        message, code = details.get("message"), details.get("code")
        if status == HTTPStatus.UNAUTHORIZED:
            return self._wrong_key()
        if not isinstance(message, str) or code == "not_found":
            return self._stranger(f"HTTP status {status}")
        next_step, exit_status = _next_step(status, str(code), message, headers)
        return CommandError(message, next_step, exit_status)

    def _wrong_key(self) -> CommandError:
        if self._address.key is None:
            return CommandError(
                f"the server at {self.url} wants an API key",
                "Set JAN_SERVE_API_KEY, or api_keys in the configuration file.",
                WRONG_USE,
            )
        return CommandError(
            f"the server at {self.url} does not take the API key of {self._address.key_origin}",
            "`jan-serve config` shows where settings come from; JAN_SERVE_API_KEY is stronger than the file.",
            WRONG_USE,
        )

    def _stranger(self, answer: str) -> CommandError:
        return CommandError(
            f"{self.url} answers, but not as this version of jan-serve does ({answer})",
            "Another program or version may have the port: --url asks another address.",
            NO_SERVER,
        )

    @contextlib.contextmanager
    def _explained(self) -> Generator[None]:
        import httpx2

        try:
            yield
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            reason = "no connection in time" if isinstance(error, httpx2.ConnectTimeout) else _reason(error)
            raise NoServer(self.url, reason) from None
        except httpx2.TimeoutException:
            raise CommandError(
                f"the server at {self.url} did not answer within {_READ_S:g} s", _LOG_HINT
            ) from None
        except httpx2.TransportError as error:
            raise CommandError(
                f"the server at {self.url} broke off: {_reason(error)}",
                "It may have been stopped: `jan-serve ps` says whether it runs.",
                NO_SERVER,
            ) from None


def _patient() -> httpx2.Timeout:
    import httpx2

    return httpx2.Timeout(None, connect=_CONNECT_S)


def _reason(error: Exception) -> str:
    """The system's words, without the number that Python puts before them."""
    text = str(error) or type(error).__name__
    return text.split("] ", 1)[1] if text.startswith("[Errno") and "] " in text else text


def _next_step(status: int, code: str, message: str, headers: Mapping[str, str]) -> tuple[str | None, int]:
    """What helps after this refusal, and the exit status."""
    known = advice(code)
    if code == ModelNotFound.code:
        return None if "jan-serve ls" in message else "`jan-serve ls` lists the models.", WRONG_USE
    if known is not None:
        return known
    wait = headers.get("retry-after")
    if status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE) and wait:
        return f"Try again in {wait} s.", FAILED
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status == HTTPStatus.TOO_MANY_REQUESTS:
        return _LOG_HINT, FAILED
    return None, WRONG_USE


def _status_of(error: Mapping[str, Any]) -> int:
    """The status that an error in a stream would have had in place of it, as far as its type tells."""
    wrong = error.get("type") == "invalid_request_error"
    return HTTPStatus.BAD_REQUEST if wrong else HTTPStatus.INTERNAL_SERVER_ERROR


def _event_data(pieces: Iterable[bytes]) -> Iterator[str]:
    """The data of each event of a stream (WHATWG HTML, section 9.2.6). An event that was cut off is left out."""
    data: list[bytes] = []
    for line in _lines(pieces):
        if line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
        elif not line and data:
            yield b"\n".join(data).decode("utf-8", "replace")
            data = []


def _lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Lines that end with LF or CRLF. httpx's own also end at U+2028 and others, which JSON text may hold."""
    rest = bytearray()
    for piece in pieces:
        *whole, last = piece.split(b"\n")
        for line in whole:
            yield (bytes(rest) + line).removesuffix(b"\r")
            rest.clear()
        rest += last
