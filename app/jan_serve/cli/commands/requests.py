"""`jan-serve top`, `why` and `explain`: the requests of the running server, where time went, and what codes mean."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, Final
from urllib.parse import quote

from jan_serve.cli.arguments import ConfigOption, JsonOption, UrlOption, argument, option
from jan_serve.cli.client.server_client import ServerClient
from jan_serve.cli.errors import WrongUse
from jan_serve.cli.options import running_server
from jan_serve.cli.output import on_terminal, output
from jan_serve.resources import explanations

_REFRESH_S: Final = 1.0
_LEAST_S: Final = 0.02
_TIERS: Final = {
    None: "",
    "cells": ", in the context",
    "ram": ", in RAM",
    "disk": ", on disk",
    "server": ", of another server",
}
_COLUMNS: Final = ("model", "state", "prompt", "cached", "first", "answer", "rate", "total", "program", "id")
_OPTIONAL: Final = ("id", "rate", "total", "program")


def top(
    lines: Annotated[int, option("--lines -n", "Number of requests.", min=1, max=512)] = 20,
    once: Annotated[bool, option("--once", "Print the table once, as without a terminal.")] = False,
    totals: Annotated[
        bool, option("--totals", "Requests and tokens of each day, by model and program.")
    ] = False,
    days: Annotated[int, option("--days", "Number of days of --totals.", min=1, max=400)] = 30,
    url: UrlOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Watch the requests of the running server: state, tokens, cache and rate. Ctrl-C ends it.

    Shows those of your key that ask a model: those that run, then the last that ended. `jan-serve why ID` explains one.
    """
    with running_server(config, url) as client:
        if totals:
            _print_totals(client.get(f"/extras/totals?days={days}")["data"], as_json=as_json)
        elif as_json:
            output.json(_requests(client, lines))
        elif once or not on_terminal():
            output.table(_COLUMNS, map(_row, _requests(client, lines)), optional=_OPTIONAL)
        else:
            output.refreshed(_COLUMNS, _frames(client, lines), optional=_OPTIONAL)


def _print_totals(rows: Sequence[Mapping[str, Any]], *, as_json: bool) -> None:
    if as_json:
        output.json(rows)
        return
    counts = ("requests", "prompt_tokens", "cached_tokens", "completion_tokens")
    output.table(
        ("day", "model", "program", "requests", "prompt", "cached", "answer"),
        [(row["day"], row["model"], row["program"], *(f"{row[name]:,}" for name in counts)) for row in rows],
    )


def _frames(client: ServerClient, lines: int) -> Generator[list[tuple[str, ...]]]:
    while True:
        yield [_row(line) for line in _requests(client, lines)]
        time.sleep(_REFRESH_S)


def _requests(client: ServerClient, limit: int, order: str = "latest") -> list[dict[str, Any]]:
    return client.get(f"/extras/requests?limit={limit}&order={order}")["data"]


def _row(line: Mapping[str, Any]) -> tuple[str, ...]:
    prompt, rate = line["prompt_tokens"], line["tokens_per_second"]
    return (
        line["model"] or "",
        line["error"] or line["state"],
        str(prompt or ""),
        f"{line['cached_tokens'] / prompt:.0%}" if prompt else "",
        _seconds(line["first_token_s"]),
        str(line["completion_tokens"] or ""),
        f"{rate:.1f}/s" if rate else "",
        _seconds(line["total_s"]),
        line["program"],
        line["id"],
    )


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.2f} s"


def why(
    request_id: Annotated[
        str | None, argument("[ID]", "`x-request-id` of the answer, as in `jan-serve top`.")
    ] = None,
    last: Annotated[bool, option("--last", "The last request; the default.")] = False,
    slowest: Annotated[
        bool, option("--slowest", "The one with the longest wait for its first token.")
    ] = False,
    url: UrlOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say where the time of a request went, and what can be done. Without ID, of the last one.

    The server remembers the last 512 requests: times, counts and hashes, never their text.
    """
    if (request_id is not None) + last + slowest > 1:
        raise WrongUse("an ID, --last and --slowest exclude each other")
    with running_server(config, url) as client:
        if request_id is None:
            found = _requests(client, 1, "slowest" if slowest else "latest")
            if not found:
                output.note("No request has asked a model yet.")
                return
            request_id = found[0]["id"]
        answer = client.get(f"/extras/why/{quote(str(request_id), safe='')}")
    if as_json:
        output.json(answer)
        return
    _print_why(answer, answer["causes"])


def _guesses(answer: Mapping[str, Any]) -> str:
    found: list[str] = []
    if answer["drafted_tokens"]:
        found.append(f"{answer['accepted_tokens']} of {answer['drafted_tokens']} guesses right")
    if answer["forced_tokens"]:
        found.append(f"{answer['forced_tokens']} forced by the grammar")
    return f" ({', '.join(found)})" if found else ""


def _print_why(answer: Mapping[str, Any], causes: Sequence[Mapping[str, Any]]) -> None:
    first = f"first token after {_seconds(answer['first_token_s'])}, " if answer["first_token_s"] else ""
    output.data(
        f"{answer['id']}  {answer['route']}  {answer['model'] or ''}  {answer['error'] or answer['state']}"
    )
    output.data(
        f"{first}{_seconds(answer['total_s'])} in all; {answer['prompt_tokens']} tokens of prompt"
        f" ({answer['cached_tokens']} from the cache{_TIERS[answer['cached_in']]}),"
        f" {answer['completion_tokens']} of answer{_guesses(answer)}"
    )
    if answer["others_s"] >= _LEAST_S:
        output.data(f"{_seconds(answer['others_s'])} of it in steps for other requests")
    if not causes:
        output.note("Nothing took longer than 0.02 s.")
        return
    output.table(("time", "cause"), [(_seconds(each["seconds"]), each["text"]) for each in causes])
    for each in causes:
        if each["advice"]:
            output.note(f"{each['code']}: {each['advice']}")


def explain(
    code: Annotated[
        str | None, argument("[CODE]", "`code` of an error, or of a cause of `jan-serve why`.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say what the code of an error means, and what can be done. Without CODE, list the codes of errors."""
    known = {**explanations()["errors"], **explanations()["causes"]}
    if code is None:
        errors = explanations()["errors"]
        if as_json:
            output.json({name: words._asdict() for name, words in errors.items()})
        else:
            output.table(("code", "meaning"), [(name, words.meaning) for name, words in errors.items()])
        return
    found = known.get(code)
    if found is None:
        near = get_close_matches(code, known, n=3)
        raise WrongUse(
            f"No error has the code {code!r}.",
            f"Did you mean {' or '.join(near)}?" if near else "`jan-serve explain` lists the codes.",
        )
    found = found.without_values()
    if as_json:
        output.json({"code": code, **found._asdict()})
        return
    output.data(found.meaning)
    if found.advice:
        output.data(found.advice)
