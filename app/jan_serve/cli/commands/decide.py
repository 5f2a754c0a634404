"""`jan-serve decide`: chooses among options, with the probability of each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from jan_serve.cli.client.loading import load_model, ready_model
from jan_serve.cli.client.own_server import any_server
from jan_serve.cli.client.server_client import ServerClient
from jan_serve.cli.commands.completion import model_argument
from jan_serve.cli.errors import WRONG_USE, CommandError
from jan_serve.cli.input import read_file, read_input
from jan_serve.cli.options import ConfigOption, JsonOption, UrlOption, load_settings
from jan_serve.cli.output import Output

_UNRELIABLE: Final = 0.01
"""Probability of all options together, below which their shares say little."""


def decide(
    model: Annotated[str, model_argument("Name of a model.")],
    question: Annotated[
        str | None, typer.Argument(metavar="QUESTION", help="What is asked about the text.")
    ] = None,
    text: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT", help="The text; default: standard input.")
    ] = None,
    options: Annotated[
        str | None,
        typer.Option("--options", metavar="A,B,C", help="The options; default: yes or no."),
    ] = None,
    several: Annotated[
        bool, typer.Option("--several", help="Any of the options may apply: each is decided.")
    ] = False,
    threshold: Annotated[
        float | None,
        typer.Option(
            "--threshold",
            metavar="P",
            min=0,
            max=1,
            help="Abstain below this probability; with --several: options apply from here on, default 0.5.",
        ),
    ] = None,
    calibrated: Annotated[
        bool, typer.Option("--calibrated", help="Correct the probabilities by the model's calibration.")
    ] = False,
    calibrate: Annotated[
        Path | None,
        typer.Option(
            "--calibrate",
            metavar="FILE",
            help="Calibrate the model instead: by a file with an example a line, in JSON, with `state`, `question`,"
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
    output = Output()
    if calibrate is not None:
        examples = _examples(calibrate)
        with any_server(loaded, url, output, model=model) as client:
            _calibrate(client, model, examples, output, as_json=as_json)
        return
    if question is None:
        raise CommandError(
            f"There is no question ({model!r} is the model).",
            "jan-serve decide MODEL QUESTION TEXT",
            WRONG_USE,
        )
    state = " ".join(text) if text else read_input(output)
    asked: dict[str, Any] = {"question": question, "threshold": threshold, "type": "yes_no"}
    if options is not None:
        names = [name.strip() for name in options.split(",") if name.strip()]
        if not names:
            raise CommandError("--options names no option.", status=WRONG_USE)
        asked |= {"type": "several" if several else "choice", "options": names}
    elif several:
        raise CommandError("--several needs --options.", status=WRONG_USE)
    with any_server(loaded, url, output, model=model) as client:
        name = ready_model(client, model, output)
        body = {"model": model, "state": state, "questions": {"answer": asked}, "calibrated": calibrated}
        reply = _decided(client, body)
    answer = reply["answers"]["answer"]
    if as_json:
        output.json({"model": name, **answer, "calibration": reply["calibration"]})
    else:
        _print_answer(output, answer, several=several)
    if answer["abstained"]:
        output.note(f"It abstains: no option reaches {threshold}.")
        raise typer.Exit(1)


def _print_answer(output: Output, answer: dict[str, Any], *, several: bool) -> None:
    rows = [
        (_word(item["option"]), f"{item['probability']:.4f}", _bar(item["probability"]))
        for item in sorted(answer["options"], key=lambda item: -item["probability"])
    ]
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
    lines = read_file(path).splitlines()
    examples: list[Any] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            examples.append(json.loads(line))
        except ValueError as error:
            raise CommandError(f"{path}, line {number} is not JSON: {error}", status=WRONG_USE) from None
    return examples


def _calibrate(
    client: ServerClient, model: str, examples: list[Any], output: Output, *, as_json: bool
) -> None:
    load_model(client, model, output)
    reply = client.post("/v1/decide/calibration", {"model": model, "examples": examples})
    if as_json:
        output.json(reply)
        return
    note_calibration(reply["model"], reply["calibration"], output)


def note_calibration(model: str, found: dict[str, Any], output: Output) -> None:
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


def _word(option: object) -> str:
    return {True: "yes", False: "no"}[option] if isinstance(option, bool) else str(option)


def _bar(probability: float) -> str:
    return "█" * round(20 * probability)
