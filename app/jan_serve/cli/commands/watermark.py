"""`jan-serve watermark`: detects the watermark of texts generated with `watermark: true`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from jan_serve.cli.client.load_progress import load_model
from jan_serve.cli.client.own_server import any_server
from jan_serve.cli.client.server_client import ServerClient
from jan_serve.cli.errors import WRONG_USE, CommandError
from jan_serve.cli.input import read_file, read_input
from jan_serve.cli.options import ConfigOption, JsonOption, UrlOption
from jan_serve.cli.output import Output
from jan_serve.config import load_settings


def watermark(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Text file, or - for standard input.")],
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="NAME", help="Name of a model; default: the default model."),
    ] = None,
    gamma: Annotated[
        float | None,
        typer.Option("--gamma", help="Preferred fraction of the vocabulary; default: the configured one."),
    ] = None,
    unique: Annotated[
        bool,
        typer.Option("--unique", help="Count each pair of tokens once, for repetitive texts."),
    ] = False,
    url: UrlOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Test whether a text has more preferred tokens than expected by chance: z score and p value.

    The text must be the output of the model without the prompt. Starts a server if none runs, for the tokens.
    """
    from jan_serve.text.watermark import detect  # imports numpy

    loaded = load_settings(config_file=config)
    share = loaded.settings.watermark_gamma if gamma is None else gamma
    output = Output()
    text = _text(file, output)
    with any_server(loaded, url, output, model=model) as client:
        name = load_model(client, model or str(client.get("/tgi/info")["model_id"]), output)
        tokens = _tokens(client, name, text)
        n_vocab = _vocabulary(client, name)
    try:
        found = detect(tokens, n_vocab, gamma=share, unique=unique)
    except ValueError as error:
        raise CommandError(f"{file}: {error}", None, WRONG_USE) from None
    if as_json:
        output.json({"model": name, "gamma": share, "unique": unique, **found._asdict()})
        return
    row = (str(found.scored), str(found.green), f"{found.z:.2f}", f"{found.p:.3g}")
    output.table(("tokens", "green", "z", "p"), [row])


def _text(file: str, output: Output) -> str:
    if file == "-":
        return read_input(output)
    return read_file(Path(file))


def _tokens(client: ServerClient, model: str, text: str) -> list[int]:
    """The tokens of the text without the special tokens before it, which were not generated."""
    body = {"model": model, "input": text, "with_pieces": True}
    answer = client.post("/extras/tokenize", body)
    tokens: list[int] = answer["tokens"]
    pieces: list[str | list[int]] = answer["pieces"]
    n_special = 0
    while (
        n_special < len(pieces)
        and isinstance(piece := pieces[n_special], str)
        and not text.startswith(piece.lstrip())
    ):
        n_special += 1
    return tokens[n_special:]


def _vocabulary(client: ServerClient, model: str) -> int:
    """Number of logits of the model."""
    listed: list[dict[str, Any]] = client.get("/models")["data"]
    return int(next(entry["meta"]["n_vocab"] for entry in listed if entry["id"] == model))
