"""`jan-serve embed`, `rerank` and `tokenize`: what models make of texts without writing any."""

from __future__ import annotations

import json
from collections.abc import Sequence
from operator import mul
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
        shown = " ".join(f"{component:.4f}" for component in vector[:_SHOWN_NUMBERS])
        more = " …" if len(vector) > _SHOWN_NUMBERS else ""
        # Vectors of the server have length 1.
        cosines = [sum(map(mul, vector, other)) for other in vectors if several]
        rows.append(
            [str(number), shortened(text, _SHOWN_TEXT), shown + more, *(f"{each:.3f}" for each in cosines)]
        )
    output.table(columns, rows)


_SHOWN_DOCUMENT: Final = 100


def rerank(
    model: Annotated[str, model_argument("A reranker.")],
    query: Annotated[str, argument("QUERY", "What the documents should answer.")],
    documents: Annotated[
        list[str] | None, argument("DOCUMENT", "Documents; default: the lines of standard input.")
    ] = None,
    top: Annotated[int | None, option("--top N", "Print only the N best ones.", min=1)] = None,
    url: UrlOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Sort documents by how well they answer a query, the best one first. Starts a server if none runs."""
    loaded = load_settings(config_file=config)
    texts = documents or [line for line in read_input().splitlines() if line.strip()]
    if not texts:
        raise WrongUse(
            f"There are no documents for {query!r} ({model!r} is the model).",
            "jan-serve rerank MODEL QUERY DOCUMENT…, or documents as lines on standard input.",
        )
    scores: list[float] = [0.0] * len(texts)
    with any_server(loaded, url, model=model) as client:
        name = ready_model(client, model)
        for start in range(0, len(texts), _BATCH):
            body = {"model": model, "query": query, "documents": texts[start : start + _BATCH]}
            for item in client.post("/v1/rerank", body)["results"]:
                scores[start + item["index"]] = item["relevance_score"]
    order = sorted(range(len(texts)), key=lambda index: -scores[index])[:top]
    if as_json:
        results = [{"index": index, "score": scores[index], "text": texts[index]} for index in order]
        output.json({"model": name, "results": results})
    elif on_terminal():
        output.table(
            ("score", "line", "text"),
            [
                (f"{scores[index]:.4f}", str(index + 1), shortened(texts[index], _SHOWN_DOCUMENT))
                for index in order
            ],
        )
    else:
        for index in order:
            output.raw(f"{scores[index]:.6g}\t{texts[index]}")


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
