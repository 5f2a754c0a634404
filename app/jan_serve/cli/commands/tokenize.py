"""`jan-serve tokenize`: converts text to tokens of a model, and tokens to text."""

from __future__ import annotations

import json
from typing import Annotated

from jan_serve.cli.arguments import ConfigOption, JsonOption, UrlOption, argument, model_argument, option
from jan_serve.cli.client.loading import ready_model
from jan_serve.cli.client.own_server import any_server
from jan_serve.cli.errors import WrongUse
from jan_serve.cli.input import read_input
from jan_serve.cli.options import load_settings
from jan_serve.cli.output import output


def tokenize(
    model: Annotated[str, model_argument("Name of a model.")],
    text: Annotated[list[str] | None, argument("TEXT", "The text; default: standard input.")] = None,
    count: Annotated[bool, option("--count", "Print only the number of tokens.")] = False,
    decode: Annotated[bool, option("--decode", "Convert the token ids in TEXT to text.")] = False,
    url: UrlOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the tokens of a text, including special tokens that the model adds. Starts a server if none runs."""
    if count and decode:
        raise WrongUse("--count and --decode exclude each other.")
    loaded = load_settings(config_file=config)
    content = " ".join(text) if text else read_input()
    ids = _ids(content) if decode else []
    with any_server(loaded, url, model=model) as client:
        name = ready_model(client, model)
        if decode:
            answer = client.post("/extras/detokenize", {"model": name, "tokens": ids})
        else:
            body = {"model": name, "input": content, "with_pieces": not count}
            answer = client.post("/extras/tokenize", body)
    if decode:
        output.json({"model": name, "text": answer["text"]}) if as_json else output.raw(answer["text"])
    elif count:
        total = len(answer["tokens"])
        output.json({"model": name, "count": total}) if as_json else output.data(str(total))
    else:
        _print_tokens(name, answer["tokens"], answer["pieces"], as_json=as_json)


def _print_tokens(model: str, ids: list[int], pieces: list[str | list[int]], *, as_json: bool) -> None:
    """pieces: the text of each token, or its bytes if it is only part of a character."""
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
    """Quoted, because spaces matter; bytes as `\\xNN`."""
    if isinstance(piece, str):
        return json.dumps(piece, ensure_ascii=False)
    return '"' + "".join(f"\\x{byte:02x}" for byte in piece) + '"'


def _ids(text: str) -> list[int]:
    words = text.replace(",", " ").replace("[", " ").replace("]", " ").split()
    for word in words:
        if not (word.isascii() and word.isdigit()):
            raise WrongUse(
                f"{word[:40]!r} is not a token id.", "--decode takes integers, separated by spaces or commas."
            )
    return [int(word) for word in words]
