"""Commands to the fake engine in a prompt.

Prompt commands (anywhere in the prompt, up to the end of the line or `<|`; the first one counts):
    !say TEXT             answer TEXT, one character a step; TEXT may be a JSON string
    !call NAME ARGUMENTS  call this tool (in Hermes' notation); answer the last result once there is one
    !echo                 answer the prompt
    !pid                  answer the process id
    !stream N [MSms]      N chunks `0 `, `1 ` …, MS milliseconds apart
    !gate PATH [N [MSms]] N chunks (default 1), then wait until somebody opens the FIFO at PATH for writing, then `done`
    !die [SIGNAL]         accept, then die of SIGNAL (default SEGV) before the first chunk
    !die-after N [SIGNAL] die of SIGNAL after N chunks
    !exit CODE [TEXT]     accept, write TEXT to stderr, exit with CODE
    !fail CODE [TEXT]     refuse with the error of this code
    !fail-after N CODE    end with the error of this code after N chunks
    !stall [PHASE]        accept, then stay in PHASE (sample, decode) for ever; `silent` stops the whole process
    !forget               accept, and never answer
    !bad-utf8 | !huge | !garbage   break the protocol
    !stderr TEXT          write TEXT (a JSON string) to stderr, then answer `ok`
Without a command it answers REPLY.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Literal, Protocol, cast

from jan_serve.errors import JanServeError, error_from_payload

Phase = Literal["loading", "idle", "decode", "sample", "embed", "other"]

REPLY = "This is the fake engine."
_COMMAND = re.compile(
    r"!(say|call|echo|pid|stream|gate|die-after|die|exit|fail-after|fail|stall|forget|bad-utf8|huge|garbage|stderr)"
    r"\b[ ]?((?:(?!<\|)[^\n])*)"
)

_RESULT = re.compile(r"<tool_response>\n(.*?)\n</tool_response>", re.DOTALL)


class Host(Protocol):
    """The engine as harmful scripts need it."""

    def enter(self, phase: Phase, request_id: int | None = None) -> None:
        """Report this phase from now on."""
        ...

    def forget(self, request_id: int) -> None:
        """Drop the request without an event."""
        ...

    def write_raw(self, data: bytes) -> None:
        """Write bytes to the pipe that no codec would write."""
        ...


class Wait:
    """Yielded by a script that has to wait."""

    def __init__(self, ready: Callable[[], bool]) -> None:
        self.ready = ready


class Refusal(Exception):
    """A script that rejects its request: an error of the tree, before or after Accepted."""

    def __init__(self, error: JanServeError) -> None:
        super().__init__(error.message)
        self.error = error


Piece = str | Wait
Script = Iterator[Piece]


def compile_script(prompt: str, host: Host, request_id: int) -> Script:
    """The pieces of the answer that the prompt asks for."""
    found = _COMMAND.search(prompt)
    if found is None:
        return characters(REPLY)
    command, argument = found.group(1), found.group(2).strip()
    words = argument.split()
    match command:
        case "say":
            return characters(json.loads(argument) if argument.startswith('"') else argument)
        case "call":
            results = _RESULT.findall(prompt[found.end() :])
            called = f'<tool_call>{{"name": "{words[0]}", "arguments": {" ".join(words[1:])}}}</tool_call>'
            return characters(results[-1] if results else called)
        case "echo":
            return characters(prompt)
        case "pid":
            return characters(str(os.getpid()))
        case "stderr":
            print(json.loads(argument), file=sys.stderr, flush=True)
            return characters("ok")
        case "stream":
            return counting(int(words[0]), seconds(words[1:]))
        case "gate":
            return gated(words[0], int(words[1]) if words[1:] else 1, seconds(words[2:]))
        case "fail":
            raise Refusal(error_from_payload(words[0], example_payload(words[0], " ".join(words[1:]))))
        case "fail-after":
            return failing(int(words[0]), error_from_payload(words[1], example_payload(words[1], "")))
        case _:
            return violent(command, words, host, request_id)


def violent(command: str, words: list[str], host: Host, request_id: int) -> Script:
    """Scripts that harm the process or the protocol."""

    def script() -> Script:
        match command:
            case "die":
                die(words[0] if words else "SEGV")
            case "die-after":
                yield from itertools.islice(counting(10**9, 0.0), int(words[0]))
                die(words[1] if words[1:] else "SEGV")
            case "exit":
                print(" ".join(words[1:]), file=sys.stderr, flush=True)
                os._exit(int(words[0]))
            case "stall":
                phase = words[0] if words else "sample"
                if phase == "silent":
                    os.kill(os.getpid(), signal.SIGSTOP)
                host.enter(cast(Phase, phase), request_id if phase == "sample" else None)
                threading.Event().wait()
            case "forget":
                host.forget(request_id)
                yield Wait(lambda: False)
            case _:
                body = {"bad-utf8": b"\x83\xa4type\xabdetokenized\xa2id\x01\xa4text\xa2\xff\xfe"}.get(
                    command, b"junk"
                )
                length = 2**32 - 1 if command == "huge" else len(body)
                host.write_raw(struct.pack("<I", length) + body)
        yield ""

    return script()


def characters(text: str) -> Script:
    """One character at a time."""
    yield from text


def counting(count: int, pause_s: float) -> Script:
    """`0 `, `1 ` … with a pause before each but the first."""
    for number in range(count):
        if number and pause_s:
            due = time.monotonic() + pause_s
            yield Wait(lambda due=due: time.monotonic() >= due)
        yield f"{number} "


def seconds(words: list[str]) -> float:
    """Seconds of a pause that is written in ms; none without a word."""
    return float(words[0].removesuffix("ms")) / 1000 if words else 0.0


def gated(path: str, count: int, pause_s: float) -> Script:
    """Pieces, then a gate, then the end. Opening the FIFO for writing opens the gate."""
    opened = threading.Event()

    def wait() -> None:
        with open(path, "rb"):
            opened.set()

    yield from counting(count, pause_s)
    threading.Thread(target=wait, daemon=True).start()
    yield Wait(opened.is_set)
    yield "done"


def failing(count: int, error: JanServeError) -> Script:
    """Pieces, then an error."""
    yield from counting(count, 0.0)
    raise Refusal(error)


def example_payload(code: str, text: str) -> dict[str, object]:
    """Enough of a payload to rebuild any error of the tree."""
    common: dict[str, object] = {"message": text or f"fake {code}", "param": None}
    extra: dict[str, dict[str, object]] = {
        "context_length_exceeded": {"n_prompt": 5000, "n_ctx": 4096, "param": "prompt", "message": None},
        "invalid_grammar": {"reason": text or "fake reason", "line": 3, "param": "grammar"},
        "invalid_schema": {"pointer": "/a", "reason": text or "fake reason"},
        "unsupported_schema": {"pointer": "/a", "keyword": "not", "reason": text or "fake reason"},
        "unsupported_pattern": {"position": 3, "reason": text or "fake reason"},
        "model_not_found": {"name": "missing", "near": []},
    }
    return {**common, **extra.get(code, {})}


def die(name: str) -> None:
    """End by a signal, as a crash of native code does."""
    os.kill(os.getpid(), signal.Signals[f"SIG{name}"])
    threading.Event().wait()
