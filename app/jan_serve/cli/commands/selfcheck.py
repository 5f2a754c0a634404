"""`jan-serve selfcheck`: whether this installation serves as the last version here did."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import Any, Final

import msgspec
import typer

from jan_serve import __version__
from jan_serve.cli.arguments import ConfigOption, JsonOption
from jan_serve.cli.client.own_server import any_server
from jan_serve.cli.client.server_client import ServerClient
from jan_serve.cli.errors import FAILED, CommandError
from jan_serve.cli.options import load_settings
from jan_serve.cli.output import output, size_text
from jan_serve.cli.server.hardware import ProbeFailed, free_main_memory, probe_engine
from jan_serve.config import LoadedSettings
from jan_serve.core.measurements import SelfCheck, worse
from jan_serve.resources import builtin_model
from jan_serve.store.measurements import SelfChecks

_GOLDEN: Final = {
    "a tale": "Once upon a time there was",
    "a list": "1. a dog\n2. a cat\n3.",
    "a function": "def add(a, b):\n",
}
_LONG_PROMPT: Final = "The boat is on the sea, and the sea is calm. " * 60
_GREEDY: Final = {"temperature": 0, "repeat_penalty": 1.0}
_N_CTX: Final = 2048
_NO_STATES: Final = {"JAN_SERVE_CACHE_DISK_MIB": "0"}
"""What another version computed must not answer for this one."""
_RUNS: Final = 3
"""The fastest one counts: other work on the machine only makes it slower."""


def selfcheck(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Compare answers, speed and devices with the last version here. The exit status is 1 if any is worse.

    Starts a server of its own with the built-in model, for some seconds. `doctor` and `/health` show the result.
    """
    loaded = load_settings(config_file=config)
    check = run_check(loaded)
    if as_json:
        output.json(msgspec.to_builtins(check))
    else:
        output.table(("", "jan-serve selfcheck"), facts_of(check))
        for finding in check.findings:
            output.warning(finding)
        if not check.findings and check.compared_with is not None:
            output.note(f"Nothing is worse than with version {check.compared_with}.")
    if check.findings:
        raise typer.Exit(FAILED)


def run_check(loaded: LoadedSettings) -> SelfCheck:
    """Measure, compare and record. Blocks for some seconds. Raises CommandError."""
    model = builtin_model()
    if model is None:
        raise CommandError("this installation has no built-in model to check with.", status=FAILED)
    checks = SelfChecks(loaded.settings.data_dir)
    try:
        engine = probe_engine()
    except ProbeFailed as error:
        raise CommandError(str(error), "`jan-serve doctor` shows more.") from None
    check = _measured(loaded, model, engine, free_main_memory())
    before = checks.before(check.version)
    if before is not None:
        check = msgspec.structs.replace(check, compared_with=before.version, findings=worse(before, check))
    try:
        checks.put(check)
    except OSError as error:
        output.warning(f"the result cannot be recorded in {loaded.settings.data_dir}: {error.strerror}")
    return check


def facts_of(check: SelfCheck) -> list[tuple[str, str]]:
    return [
        ("version", check.version),
        ("time", time.strftime("%Y-%m-%d %H:%M", time.localtime(check.at))),
        ("compared with", check.compared_with or "nothing yet"),
        ("reads", f"{check.prompt_per_s:.0f} tokens/s"),
        ("writes", f"{check.tokens_per_s:.0f} tokens/s"),
        ("devices", ", ".join(check.devices) or "none"),
        ("free memory", size_text(check.free_bytes)),
    ]


def _measured(loaded: LoadedSettings, model: Path, engine: dict[str, Any], free_bytes: int) -> SelfCheck:
    with any_server(loaded, None, model=model, n_ctx=_N_CTX, variables=_NO_STATES) as client:
        answers = {name: _digest_of_answer(client, text) for name, text in _GOLDEN.items()}
        timings = [_timings(client) for _ in range(_RUNS)]
    return SelfCheck(
        version=__version__,
        llama_cpp=engine["llama_cpp"],
        at=time.time(),
        answers=answers,
        prompt_per_s=max(each["prompt_per_second"] for each in timings),
        tokens_per_s=max(each["predicted_per_second"] for each in timings),
        devices={str(each["name"]): int(each.get("total_bytes", 0)) for each in engine.get("devices", [])},
        free_bytes=free_bytes,
    )


def _digest_of_answer(client: ServerClient, text: str) -> str:
    body = {"prompt": text, "max_tokens": 48, "ignore_eos": True, **_GREEDY}
    answer: str = client.post("/v1/completions", body)["choices"][0]["text"]
    return hashlib.sha256(answer.encode()).hexdigest()


def _timings(client: ServerClient) -> dict[str, float]:
    """Time a long prompt, which nothing in the cache shortens, and an answer of 128 tokens."""
    messages = [{"role": "user", "content": f"{time.monotonic_ns()} {_LONG_PROMPT}"}]
    body = {"messages": messages, "max_tokens": 128, "ignore_eos": True, **_GREEDY}
    timings: dict[str, float] = client.post("/v1/chat/completions", body)["timings"]
    return timings
