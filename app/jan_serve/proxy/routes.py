"""The routes that go on to a node. Another protocol of the nodes is a line here."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

_POST: Final = frozenset({"POST"})
_READ: Final = frozenset({"GET"})
_ANY: Final = frozenset({"GET", "POST", "DELETE"})


class Route(msgspec.Struct, frozen=True):
    """pattern: a path, or a prefix that ends with `/*`. sticky: `keeps` answers have an id, and later requests for it
    go to the same node; `follows` such a request has the id in its path. migrates: with DistServe, one node computes
    the prompt and another one the answer. is_form: its bodies are forms with a file, not JSON.
    """

    pattern: str
    methods: frozenset[str] = _POST
    sticky: Literal["", "keeps", "follows"] = ""
    migrates: bool = False
    is_form: bool = False


FORWARDED: Final = (
    # LMDeploy's and OpenAI's
    Route("/v1/chat/completions", migrates=True),
    Route("/v1/completions", migrates=True),
    Route("/v1/embeddings"),
    Route("/v1/encode"),
    Route("/pooling"),
    Route("/generate"),
    Route("/generate_stream"),
    Route("/v1/responses", sticky="keeps"),
    Route("/v1/responses/*", _ANY, sticky="follows"),
    Route("/v1/audio/transcriptions", is_form=True),
    # LMDeploy's below the prefix that they have beside other protocols
    Route("/lmdeploy/generate"),
    Route("/lmdeploy/pooling"),
    Route("/lmdeploy/v1/chat/completions"),
    Route("/lmdeploy/v1/completions"),
    Route("/lmdeploy/v1/embeddings"),
    Route("/lmdeploy/v1/encode"),
    # Anthropic's, Ollama's
    Route("/v1/messages"),
    Route("/v1/messages/count_tokens"),
    Route("/api/chat"),
    Route("/api/generate"),
    Route("/api/embed"),
    Route("/api/embeddings"),
    Route("/api/show"),
    Route("/api/version", _READ),
    # llama-server's, Jina's, Cohere's
    Route("/rerank"),
    Route("/reranking"),
    Route("/v1/rerank"),
    Route("/v1/reranking"),
    Route("/v2/rerank"),
    Route("/v1/decide"),
    Route("/v1/systemone"),
    # Text Generation Inference's, llama-server's, ours
    Route("/"),
    Route("/tgi"),
    Route("/tgi/*", frozenset({"GET", "POST"})),
    Route("/invocations"),
    Route("/vertex"),
    Route("/chat_tokenize"),
    Route("/info", _READ),
    Route("/infill"),
    Route("/completion"),
    Route("/tokenize"),
    Route("/detokenize"),
    Route("/apply-template"),
    Route("/extras/tokenize"),
    Route("/extras/tokenize/count"),
    Route("/extras/detokenize"),
    Route("/extras/grammar"),
    Route("/extras/grammar/explain"),
)
"""Not there, on purpose: what changes one server (models, sleep, weights, aborting, its end), and what describes one.
`tests/contract/proxy/test_routes.py` names all of it."""
FORMS: Final = tuple(route.pattern for route in FORWARDED if route.is_form)


class RouteTable:
    def __init__(self, routes: tuple[Route, ...] = FORWARDED) -> None:
        self._exact = {route.pattern: route for route in routes if not route.pattern.endswith("/*")}
        self._prefixes = [route for route in routes if route.pattern.endswith("/*")]

    def find(self, path: str) -> Route | None:
        """A path with `.` or `..` steps has no route: it could leave its prefix at the node."""
        route = self._exact.get(path)
        if route is not None:
            return route
        if any(step in (".", "..") for step in path.split("/")) or "\\" in path:
            return None
        return next((route for route in self._prefixes if path.startswith(route.pattern[:-1])), None)
