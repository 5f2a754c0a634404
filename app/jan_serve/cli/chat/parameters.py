"""Parameters of `/set` and `--set`: fields of the chat request. Only names are checked; the server checks values."""

from __future__ import annotations

import difflib
import json
from typing import Any, Final

from jan_serve.cli.errors import WRONG_USE, CommandError

PARAMETERS: Final = {
    "temperature": "randomness; 0 always picks the most likely token",
    "top_p": "sample from the most likely tokens up to this total probability, 0 to 1",
    "top_k": "sample from the k most likely tokens; 0 is off",
    "min_p": "minimum probability relative to the most likely token, 0 to 1",
    "repeat_penalty": "penalty for repeated tokens; 1 is off",
    "presence_penalty": "penalty for tokens that already occur, -2 to 2",
    "frequency_penalty": "penalty that grows with the frequency of a token, -2 to 2",
    "mirostat_mode": "Mirostat 1 or 2; 0 is off",
    "mirostat_tau": "target entropy of Mirostat",
    "mirostat_eta": "learning rate of Mirostat",
    "seed": "the same seed gives the same answer; -1 is random",
    "stop": 'texts that end the answer, as ["one", "two"]',
    "min_tokens": "minimum number of tokens in the answer",
    "max_tokens": "maximum number of tokens in the answer; 0 is until the context is full",
    "enable_thinking": "whether a reasoning model thinks: true or false",
    "reasoning_budget": "maximum number of reasoning tokens; -1 is no limit",
    "reasoning_effort": "none, minimal, low, medium, high or xhigh",
}


def parameter(name: str, text: str) -> tuple[str, Any]:
    """Parse a parameter: a value that is not JSON is a string. Raises CommandError."""
    known = name.strip().replace("-", "_").lower()
    if known not in PARAMETERS:
        near = difflib.get_close_matches(known, list(PARAMETERS), n=1)
        hint = f"Did you mean {near[0]}?" if near else f"Parameters: {', '.join(PARAMETERS)}."
        raise CommandError(f"There is no parameter {name!r}.", hint, WRONG_USE)
    text = text.strip()
    if not text:
        raise CommandError(f"{known} needs a value: {PARAMETERS[known]}.", status=WRONG_USE)
    try:
        return known, json.loads(text, parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        words = {"on": True, "off": False, "yes": True, "no": False}
        return known, words.get(text.lower(), text)


def assignments(pairs: list[str]) -> dict[str, Any]:
    """Parse pairs of the form `NAME=VALUE`. Raises CommandError."""
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise CommandError(f"--set takes NAME=VALUE, but {pair!r} has no `=`.", status=WRONG_USE)
        key, parsed = parameter(name, value)
        found[key] = parsed
    return found


def _reject_constant(word: str) -> Any:
    """NaN and Infinity are not JSON."""
    raise ValueError(word)
