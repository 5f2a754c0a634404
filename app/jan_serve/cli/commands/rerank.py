"""`jan-serve rerank`: sorts texts by how well they answer a query."""

from __future__ import annotations

from typing import Annotated, Final

from jan_serve.cli.arguments import ConfigOption, JsonOption, UrlOption, argument, model_argument, option
from jan_serve.cli.client.loading import ready_model
from jan_serve.cli.client.own_server import any_server
from jan_serve.cli.errors import WrongUse
from jan_serve.cli.input import read_input
from jan_serve.cli.options import load_settings
from jan_serve.cli.output import on_terminal, output, shortened

_BATCH: Final = 256
"""Documents per request: limits the work that an interrupted command loses."""
_SHOWN_TEXT: Final = 100


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
                (f"{scores[index]:.4f}", str(index + 1), shortened(texts[index], _SHOWN_TEXT))
                for index in order
            ],
        )
    else:
        for index in order:
            output.raw(f"{scores[index]:.6g}\t{texts[index]}")
