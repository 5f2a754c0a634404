"""`jan-serve watermark`: whether a text bears the watermark that `watermark: true` gives."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from jan_serve.cli.client.loading import load_model
from jan_serve.cli.client.own_server import any_server
from jan_serve.cli.client.server_connection import ServerConnection
from jan_serve.cli.errors import WRONG_USE, CommandError
from jan_serve.cli.input import read_file, read_input
from jan_serve.cli.options import ConfigOption, JsonOption, UrlOption
from jan_serve.cli.output import Output
from jan_serve.config import load_settings


def watermark(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A text, or - for standard input.")],
    model: Annotated[
        str | None,
        typer.Option(
            "--model", metavar="NAME", help="The model that is asked about; the default one if absent."
        ),
    ] = None,
    gamma: Annotated[
        float | None,
        typer.Option("--gamma", help="Share of the vocabulary that was preferred; as configured if absent."),
    ] = None,
    unique: Annotated[
        bool,
        typer.Option("--unique", help="Count each pair of tokens once: for texts that repeat themselves."),
    ] = False,
    url: UrlOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say by how much the preferred tokens of a text outnumber chance: z, and p, the probability of that by chance.

    The text has to be what the model wrote, without its prompt. Starts a server if none runs, for the tokens.
    """
    from jan_serve.text.watermark import detect  # the other commands do without numpy

    loaded = load_settings(config_file=config)
    share = loaded.settings.watermark_gamma if gamma is None else gamma
    output = Output()
    text = _text(file, output)
    with any_server(loaded, url, output, model=model) as connection:
        name = load_model(connection, model or str(connection.get("/tgi/info")["model_id"]), output)
        tokens = _tokens(connection, name, text)
        n_vocab = _vocabulary(connection, name)
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


def _tokens(connection: ServerConnection, model: str, text: str) -> list[int]:
    """The text's own tokens: what the vocabulary puts before it was not generated."""
    body = {"model": model, "input": text, "with_pieces": True}
    answer = connection.post("/extras/tokenize", body)
    tokens: list[int] = answer["tokens"]
    pieces: list[str | list[int]] = answer["pieces"]
    added = 0
    while (
        added < len(pieces)
        and isinstance(piece := pieces[added], str)
        and not text.startswith(piece.lstrip())
    ):
        added += 1
    return tokens[added:]


def _vocabulary(connection: ServerConnection, model: str) -> int:
    """The width of the model's logits."""
    listed: list[dict[str, Any]] = connection.get("/models")["data"]
    return int(next(entry["meta"]["n_vocab"] for entry in listed if entry["id"] == model))
