"""`jan-serve tokenize`: the tokens of a text in a model's vocabulary, and the text of tokens."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from jan_serve.cli.client.loading import load_model
from jan_serve.cli.client.own_server import any_server
from jan_serve.cli.commands.completion import complete_model
from jan_serve.cli.errors import WRONG_USE, CommandError
from jan_serve.cli.input import read_input
from jan_serve.cli.options import ConfigOption, JsonOption, UrlOption
from jan_serve.cli.output import Output
from jan_serve.config import load_settings


def tokenize(
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="A model, as requests name it.", autocompletion=complete_model),
    ],
    text: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT", help="The text; without it, standard input.")
    ] = None,
    count: Annotated[bool, typer.Option("--count", help="Only how many tokens there are.")] = False,
    decode: Annotated[
        bool, typer.Option("--decode", help="TEXT is token ids: print the text that they stand for.")
    ] = False,
    url: UrlOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the tokens of a text, with those that the model puts around it. Starts a server if none runs."""
    if count and decode:
        raise CommandError("--count and --decode exclude each other.", status=WRONG_USE)
    loaded = load_settings(config_file=config)
    output = Output()
    given = " ".join(text) if text else read_input(output)
    ids = _ids(given) if decode else []
    with any_server(loaded, url, output, model=model) as connection:
        name = load_model(connection, model, output)
        if decode:
            answer = connection.post("/extras/detokenize", {"model": name, "tokens": ids})
        else:
            body = {"model": name, "input": given, "with_pieces": not count}
            answer = connection.post("/extras/tokenize", body)
    if decode:
        output.json({"model": name, "text": answer["text"]}) if as_json else output.raw(answer["text"])
    elif count:
        total = len(answer["tokens"])
        output.json({"model": name, "count": total}) if as_json else output.data(str(total))
    else:
        _print_tokens(name, answer["tokens"], answer["pieces"], output, as_json=as_json)


def _print_tokens(
    model: str, ids: list[int], pieces: list[str | list[int]], output: Output, *, as_json: bool
) -> None:
    """pieces: the text of each token, or its bytes where it is a part of a character only."""
    if as_json:
        tokens = [
            {"id": token, "text": piece} if isinstance(piece, str) else {"id": token, "bytes": piece}
            for token, piece in zip(ids, pieces, strict=True)
        ]
        output.json({"model": model, "count": len(ids), "tokens": tokens})
        return
    rows = [(str(token), _quoted(piece)) for token, piece in zip(ids, pieces, strict=True)]
    output.table(("id", "text"), rows)
    output.note(f"{len(ids)} tokens")


def _quoted(piece: str | list[int]) -> str:
    """In quotes, because blanks count; bytes as escapes, as Python writes them."""
    if isinstance(piece, str):
        return json.dumps(piece, ensure_ascii=False)
    return '"' + "".join(f"\\x{byte:02x}" for byte in piece) + '"'


def _ids(text: str) -> list[int]:
    words = text.replace(",", " ").replace("[", " ").replace("]", " ").split()
    for word in words:
        if not (word.isascii() and word.isdigit()):
            raise CommandError(
                f"{word[:40]!r} is not a token id.",
                "--decode takes whole numbers, with blanks or commas between.",
                WRONG_USE,
            )
    return [int(word) for word in words]
