"""`jan-serve explain`: what the codes of errors, and of the causes of `jan-serve why`, mean."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated

from jan_serve.cli.arguments import JsonOption, argument
from jan_serve.cli.errors import WrongUse
from jan_serve.cli.output import output
from jan_serve.resources import explanations


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
