"""What `/set` and `--set` change: fields of the chat request. The server checks the values; here only names are."""

from __future__ import annotations

import difflib
import json
from typing import Any, Final

from jan_serve.cli.errors import WRONG_USE, CommandError

PARAMETERS: Final = {
    "temperature": "randomness; 0 always takes the most likely token",
    "top_p": "only the likely tokens up to this mass, 0 to 1",
    "top_k": "only the k most likely tokens; 0 is off",
    "min_p": "least probability relative to the most likely token, 0 to 1",
    "repeat_penalty": "against repetition; 1 is off",
    "presence_penalty": "against tokens that are there already, -2 to 2",
    "frequency_penalty": "against frequent tokens, -2 to 2",
    "mirostat_mode": "Mirostat 1 or 2; 0 is off",
    "mirostat_tau": "Mirostat's target entropy",
    "mirostat_eta": "Mirostat's learning rate",
    "seed": "same seed, same answer; -1 draws one",
    "stop": 'texts that end the answer, as ["one", "two"]',
    "min_tokens": "tokens before the model may end",
    "max_tokens": "longest answer in tokens; 0 is until the context ends",
    "enable_thinking": "whether a model that can think does: true or false",
    "reasoning_budget": "tokens after which a thought is closed; -1 is no limit",
    "reasoning_effort": "none, minimal, low, medium, high or xhigh",
}


def parameter(name: str, text: str) -> tuple[str, Any]:
    """Name and value of a setting as a person writes it: JSON where it is, else a text. Raises CommandError."""
    known = name.strip().replace("-", "_").lower()
    if known not in PARAMETERS:
        near = difflib.get_close_matches(known, list(PARAMETERS), n=1)
        hint = f"Did you mean {near[0]}?" if near else f"There are {', '.join(PARAMETERS)}."
        raise CommandError(f"There is no parameter {name!r}.", hint, WRONG_USE)
    text = text.strip()
    if not text:
        raise CommandError(f"{known} needs a value: {PARAMETERS[known]}.", status=WRONG_USE)
    try:
        return known, json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        words = {"on": True, "off": False, "yes": True, "no": False}
        return known, words.get(text.lower(), text)


def assignments(pairs: list[str]) -> dict[str, Any]:
    """Of `NAME=VALUE` each. Raises CommandError."""
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise CommandError(f"--set takes NAME=VALUE, and {pair!r} has no `=`.", status=WRONG_USE)
        key, parsed = parameter(name, value)
        found[key] = parsed
    return found


def _no_constant(word: str) -> Any:
    """NaN and Infinity are no JSON."""
    raise ValueError(word)
