"""`jan-serve embed`: vectors of texts, and on a terminal how close the texts are to each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import typer

from jan_serve.cli.client.loading import load_model
from jan_serve.cli.client.own_server import any_server
from jan_serve.cli.commands.completion import complete_model
from jan_serve.cli.errors import WRONG_USE, CommandError
from jan_serve.cli.input import read_input
from jan_serve.cli.options import ConfigOption, JsonOption, UrlOption
from jan_serve.cli.output import Output, on_terminal
from jan_serve.config import load_settings

_SHOWN_NUMBERS: Final = 4
_SHOWN_TEXT: Final = 40
_MOST_COMPARED: Final = 8
_AT_ONCE: Final = 256
"""Texts of one request: an interrupted command loses no more than these, and no request becomes too large."""

Vector = list[float]


def embed(
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="A model, as requests name it.", autocompletion=complete_model),
    ],
    texts: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT", help="Texts; without any, standard input is one."),
    ] = None,
    lines: Annotated[
        bool, typer.Option("--lines", help="Every line of standard input is a text; empty ones are left out.")
    ] = False,
    dimensions: Annotated[
        int | None,
        typer.Option(
            "--dimensions", metavar="N", min=1, help="Keep the first N numbers, scaled to length 1."
        ),
    ] = None,
    url: UrlOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Turn texts into vectors. Piped, a line has the numbers of one text. Starts a server if none runs."""
    if lines and texts:
        raise CommandError("--lines reads standard input, so it takes no TEXT.", status=WRONG_USE)
    loaded = load_settings(config_file=config)
    output = Output()
    given = texts or _from_input(output, lines=lines)
    vectors: list[Vector] = []
    n_tokens = 0
    with any_server(loaded, url, output, model=model) as connection:
        name = load_model(connection, model, output)
        for start in range(0, len(given), _AT_ONCE):
            body = {"model": model, "input": given[start : start + _AT_ONCE], "encoding_format": "float"}
            answer = connection.post(
                "/v1/embeddings", body | ({"dimensions": dimensions} if dimensions else {})
            )
            vectors += [item["embedding"] for item in answer["data"]]
            n_tokens += answer["usage"]["prompt_tokens"]
    if as_json:
        items = [{"text": text, "embedding": vector} for text, vector in zip(given, vectors, strict=True)]
        output.json({"model": name, "tokens": n_tokens, "embeddings": items})
    elif on_terminal():
        _show(given, vectors, output)
        output.note(f"{n_tokens} tokens, {len(vectors[0])} numbers a text; --json has all of them.")
    else:
        for vector in vectors:
            output.data(" ".join(f"{number:.9g}" for number in vector))


def _from_input(output: Output, *, lines: bool) -> list[str]:
    text = read_input(output)
    found = [line for line in text.splitlines() if line.strip()] if lines else [text] if text.strip() else []
    if not found:
        raise CommandError(
            "There is no text to embed.", "Give texts as arguments, or pipe one in.", WRONG_USE
        )
    return found


def _show(texts: Sequence[str], vectors: Sequence[Vector], output: Output) -> None:
    """A row a text: the first numbers, and the similarity (cosine) to each text."""
    several = 1 < len(texts) <= _MOST_COMPARED
    columns = ("#", "text", "vector", *(f"~{number}" for number in range(1, len(texts) + 1) if several))
    rows: list[list[str]] = []
    for number, (text, vector) in enumerate(zip(texts, vectors, strict=True), 1):
        row = [str(number), _shortened(text), _first(vector)]
        if several:
            row += [f"{_similarity(vector, other):.3f}" for other in vectors]
        rows.append(row)
    output.table(columns, rows)


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN_TEXT else line[: _SHOWN_TEXT - 1] + "…"


def _first(vector: Vector) -> str:
    shown = " ".join(f"{number:.4f}" for number in vector[:_SHOWN_NUMBERS])
    return shown + (" …" if len(vector) > _SHOWN_NUMBERS else "")


def _similarity(one: Vector, other: Vector) -> float:
    """The cosine: the server's vectors have length 1."""
    return sum(a * b for a, b in zip(one, other, strict=True))
