"""`jan-serve decide`: chooses among options, with the probability of each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from jan_serve.cli.arguments import ConfigOption, JsonOption, UrlOption, argument, model_argument, option
from jan_serve.cli.client.loading import load_model, ready_model
from jan_serve.cli.client.own_server import any_server
from jan_serve.cli.client.server_client import ServerClient
from jan_serve.cli.errors import CommandError, WrongUse
from jan_serve.cli.input import read_file, read_input
from jan_serve.cli.options import load_settings
from jan_serve.cli.output import output

_UNRELIABLE: Final = 0.01
"""Probability of all options together, below which their shares say little."""


def decide(
    model: Annotated[str, model_argument("Name of a model.")],
    question: Annotated[str | None, argument("QUESTION", "What is asked about the text.")] = None,
    text: Annotated[list[str] | None, argument("TEXT", "The text; default: standard input.")] = None,
    options: Annotated[str | None, option("--options A,B,C", "The options; default: yes or no.")] = None,
    several: Annotated[bool, option("--several", "Any of the options may apply: each is decided.")] = False,
    threshold: Annotated[
        float | None,
        option(
            "--threshold P",
            "Abstain below this probability; with --several: options apply from here on, default 0.5.",
            min=0,
            max=1,
        ),
    ] = None,
    calibrated: Annotated[
        bool, option("--calibrated", "Correct the probabilities by the model's calibration.")
    ] = False,
    calibrate: Annotated[
        Path | None,
        option(
            "--calibrate FILE",
            "Calibrate the model instead: by a file with an example a line, in JSON, with `state`, `question`,"
            " `options` and `answer`.",
        ),
    ] = None,
    url: UrlOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Choose among options, with the probability of each. Starts a server if none runs.

    The exit status is 1 if the model abstains. `--calibrate` fits a temperature on examples and keeps it with
    the model.
    """
    loaded = load_settings(config_file=config)
    if calibrate is not None:
        examples = _examples(calibrate)
        with any_server(loaded, url, model=model) as client:
            _calibrate(client, model, examples, as_json=as_json)
        return
    if question is None:
        raise WrongUse(
            f"There is no question ({model!r} is the model).", "jan-serve decide MODEL QUESTION TEXT"
        )
    state = " ".join(text) if text else read_input()
    asked: dict[str, Any] = {"question": question, "threshold": threshold, "type": "yes_no"}
    if options is not None:
        names = [name.strip() for name in options.split(",") if name.strip()]
        if not names:
            raise WrongUse("--options names no option.")
        asked |= {"type": "several" if several else "choice", "options": names}
    elif several:
        raise WrongUse("--several needs --options.")
    with any_server(loaded, url, model=model) as client:
        name = ready_model(client, model)
        body = {"model": model, "state": state, "questions": {"answer": asked}, "calibrated": calibrated}
        reply = _decided(client, body)
    answer = reply["answers"]["answer"]
    if as_json:
        output.json({"model": name, **answer, "calibration": reply["calibration"]})
    else:
        _print_answer(answer, several=several)
    if answer["abstained"]:
        output.note(f"It abstains: no option reaches {threshold}.")
        raise typer.Exit(1)


def _print_answer(answer: dict[str, Any], *, several: bool) -> None:
    words: dict[object, str] = {True: "yes", False: "no"}
    rows: list[tuple[str, str, str]] = []
    for item in sorted(answer["options"], key=lambda item: -item["probability"]):
        option, probability = item["option"], item["probability"]
        word = words[option] if isinstance(option, bool) else str(option)
        rows.append((word, f"{probability:.4f}", "█" * round(20 * probability)))
    output.table(("option", "probability", ""), rows)
    if several:
        output.note(f"What applies: {', '.join(map(str, answer['answer'])) or 'nothing'}.")
    if answer["mass"] < _UNRELIABLE:
        output.warning(
            "Not reliable: on its own the model would almost never give one of these answers"
            f" (probability {answer['mass']:.2g})."
        )
    else:
        output.note(f"The model would write one of them with probability {answer['mass']:.2g}.")


def _decided(client: ServerClient, body: dict[str, Any]) -> dict[str, Any]:
    try:
        return client.post("/v1/decide", body)
    except CommandError as error:
        if not error.message.startswith("calibrated: ") or error.next_step is not None:
            raise
        hint = f"`jan-serve decide {body['model']} --calibrate FILE` makes one."
        raise CommandError(error.message.partition(";")[0], hint, error.status) from None


def _examples(path: Path) -> list[Any]:
    """The lines of a file. Raises CommandError, which names the line."""
    examples: list[Any] = []
    for number, line in enumerate(read_file(path).splitlines(), 1):
        try:
            examples += [json.loads(line)] if line.strip() else []
        except ValueError as error:
            raise WrongUse(f"{path}, line {number} is not JSON: {error}") from None
    return examples


def _calibrate(client: ServerClient, model: str, examples: list[Any], *, as_json: bool) -> None:
    load_model(client, model)
    reply = client.post("/v1/decide/calibration", {"model": model, "examples": examples})
    if as_json:
        output.json(reply)
        return
    note_calibration(reply["model"], reply["calibration"])


def note_calibration(model: str, found: dict[str, Any]) -> None:
    """found: the calibration, as the server answers it."""
    output.note(
        f"The temperature of {model} is {found['temperature']:.3g}, fitted on {found['examples']} examples"
        f" ({found['accuracy']:.0%} right): their loss falls from {found['loss_before']:.3g} to"
        f" {found['loss_after']:.3g}."
    )
    if found["at_bound"]:
        advice = (
            "more examples, or harder ones, would tell more"
            if found["accuracy"] == 1
            else "the probabilities do not follow these answers; check the answers, or use more examples"
        )
        output.note(f"That is a bound: {advice}.")
