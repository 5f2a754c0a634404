"""`jan-serve embed`: embeddings of texts, and on a terminal their similarities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

from jan_serve.cli.arguments import ConfigOption, JsonOption, UrlOption, argument, model_argument, option
from jan_serve.cli.client.loading import ready_model
from jan_serve.cli.client.own_server import any_server
from jan_serve.cli.errors import WrongUse
from jan_serve.cli.input import read_input
from jan_serve.cli.options import load_settings
from jan_serve.cli.output import on_terminal, output, shortened

_SHOWN_NUMBERS: Final = 4
_SHOWN_TEXT: Final = 40
_MAX_COMPARED: Final = 8
_BATCH: Final = 256
"""Texts per request: limits the size of a request, and the work that an interrupted command loses."""

Vector = list[float]


def embed(
    model: Annotated[str, model_argument("A model, as requests name it.")],
    texts: Annotated[
        list[str] | None, argument("TEXT", "Texts; default: standard input as one text.")
    ] = None,
    lines: Annotated[bool, option("--lines", "Embed each line of standard input; skip empty lines.")] = False,
    dimensions: Annotated[
        int | None,
        option("--dimensions N", "Truncate the vectors to N dimensions, normalised to length 1.", min=1),
    ] = None,
    url: UrlOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the embeddings of texts, in a pipe one vector per line. Starts a server if none runs."""
    if lines and texts:
        raise WrongUse("--lines reads standard input, so it takes no TEXT.")
    loaded = load_settings(config_file=config)
    inputs = texts or _from_input(lines=lines)
    vectors: list[Vector] = []
    n_tokens = 0
    with any_server(loaded, url, model=model) as client:
        name = ready_model(client, model)
        for start in range(0, len(inputs), _BATCH):
            body = {"model": model, "input": inputs[start : start + _BATCH], "encoding_format": "float"}
            answer = client.post("/v1/embeddings", body | ({"dimensions": dimensions} if dimensions else {}))
            vectors += [item["embedding"] for item in answer["data"]]
            n_tokens += answer["usage"]["prompt_tokens"]
    if as_json:
        items = [{"text": text, "embedding": vector} for text, vector in zip(inputs, vectors, strict=True)]
        output.json({"model": name, "tokens": n_tokens, "embeddings": items})
    elif on_terminal():
        _show(inputs, vectors)
        output.note(f"{n_tokens} tokens, {len(vectors[0])} dimensions; --json prints the whole vectors.")
    else:
        for vector in vectors:
            output.data(" ".join(f"{number:.9g}" for number in vector))


def _from_input(*, lines: bool) -> list[str]:
    text = read_input()
    found = [line for line in text.splitlines() if line.strip()] if lines else [text] if text.strip() else []
    if not found:
        raise WrongUse("There is no text to embed.", "Pass texts as arguments or on standard input.")
    return found


def _show(texts: Sequence[str], vectors: Sequence[Vector]) -> None:
    """One row per text: the first components, and the cosine similarity to each text."""
    several = 1 < len(texts) <= _MAX_COMPARED
    columns = ("#", "text", "vector", *(f"~{number}" for number in range(1, len(texts) + 1) if several))
    rows: list[list[str]] = []
    for number, (text, vector) in enumerate(zip(texts, vectors, strict=True), 1):
        row = [str(number), shortened(text, _SHOWN_TEXT), _first(vector)]
        if several:
            row += [f"{_similarity(vector, other):.3f}" for other in vectors]
        rows.append(row)
    output.table(columns, rows)


def _first(vector: Vector) -> str:
    shown = " ".join(f"{number:.4f}" for number in vector[:_SHOWN_NUMBERS])
    return shown + (" …" if len(vector) > _SHOWN_NUMBERS else "")


def _similarity(one: Vector, other: Vector) -> float:
    """The cosine, because the vectors of the server have length 1."""
    return sum(a * b for a, b in zip(one, other, strict=True))
