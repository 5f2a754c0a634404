"""Replies of a running server against Jan's API document, if it is available."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any, Final, cast

import pytest
import schemathesis
from jsonschema import Draft202012Validator

from tests.integration.http.support import GREEDY, payloads, serving_models
from tests.support.clients.raw_http import get, post
from tests.support.drawn_calls import draw_calls
from tests.support.servers.served import Served

pytestmark = pytest.mark.integration

SEEDS: Final = Path(__file__).resolve().parents[5] / "shared" / "seeds"
HELLO: Final = [{"role": "user", "content": "Hello"}]


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    found = sorted(SEEDS.glob("004_*.txt"))
    if not found:
        pytest.skip("Jan's API document is not beside this checkout")
    read: dict[str, Any] = json.loads(found[0].read_text(encoding="utf-8"))
    return read


REPLIES: Final[list[tuple[str, dict[str, Any]]]] = [
    ("/v1/completions", {"prompt": "hello", "max_tokens": 4}),
    ("/v1/completions", {"prompt": ["hello", "a"], "n": 2, "logprobs": 2, "echo": True, "max_tokens": 4}),
    ("/v1/completions", {"prompt": "hello", "suffix": "x", "best_of": 2, "max_tokens": 4}),
    ("/v1/chat/completions", {"messages": HELLO, "max_tokens": 4}),
    (
        "/v1/chat/completions",
        {"messages": HELLO, "max_tokens": 4, "logprobs": True, "top_logprobs": 2, "n": 2},
    ),
    ("/extras/tokenize", {"input": "hello"}),
    ("/extras/tokenize/count", {"input": "hello"}),
    ("/extras/detokenize", {"tokens": [65, 66]}),
]


@pytest.mark.parametrize(("path", "body"), REPLIES)
def test_replies_fit_jans_document(
    server: Served, document: dict[str, Any], path: str, body: dict[str, Any]
) -> None:
    response = post(server.url(), path, {**GREEDY, **body})
    assert response.status == 200
    _check(document, _schema(document, path, "200"), response.json())


@pytest.mark.parametrize("path", sorted({path for path, _ in REPLIES}))
def test_violations_fit_jans_document(server: Served, document: dict[str, Any], path: str) -> None:
    response = post(server.url(), path, {"prompt": {}, "messages": 1, "input": 2, "tokens": "x"})
    assert response.status == 422
    _check(document, _schema(document, path, "422"), response.json())


def test_the_model_list_fits_jans_document(server: Served, document: dict[str, Any]) -> None:
    response = get(server.url(), "/v1/models")
    assert response.json()["data"]
    _check(document, _schema(document, "/v1/models", "200", "get"), response.json())


def _schema(document: dict[str, Any], path: str, status: str, method: str = "post") -> dict[str, Any]:
    found: dict[str, Any] = document["paths"][path][method]["responses"][status]["content"]
    return found["application/json"]["schema"]


def _check(document: dict[str, Any], schema: dict[str, Any], instance: object) -> None:
    # A reply that may be text is checked as the object it is.
    options = [option for option in schema.get("anyOf", [schema]) if "$ref" in option]
    assert options
    validator: Any = Draft202012Validator({**options[0], "components": document["components"]})
    assert [error.message for error in validator.iter_errors(instance)] == []


_SEEDS: Final = Path(__file__).resolve().parents[5] / "shared" / "seeds"
_FOUND: Final = sorted(_SEEDS.glob("002_*.txt"))
if not _FOUND:
    pytest.skip("TGI's API document is not beside this checkout", allow_module_level=True)


_SCHEMATHESIS: Any = schemathesis
_DOCUMENT: Final[dict[str, Any]] = json.loads(_FOUND[0].read_text(encoding="utf-8"))
_REFUSALS: Final = (
    "Failed to parse the request body as JSON: ",
    "Failed to deserialize the JSON body into the target type: ",
    "Expected request with `Content-Type: application/json`",
)
_ERROR_TYPES: Final = {"validation", "generation", "template_error", "tool_error", "overloaded"}


def _read(node: Any) -> Any:
    """The document as 3.1: it declares 3.0, and has 3.1's bounds but 3.0's `nullable`."""
    if isinstance(node, list):
        return [_read(item) for item in cast(list[Any], node)]
    if not isinstance(node, dict):
        return node
    plain = {key: _read(value) for key, value in cast(dict[str, Any], node).items() if key != "nullable"}
    return {"anyOf": [plain, {"type": "null"}]} if cast(dict[str, Any], node).get("nullable") else plain


_CORRECTED: Final[dict[str, Any]] = {**_read(_DOCUMENT), "openapi": "3.1.0"}
_COMPONENTS: Final[Any] = _CORRECTED["components"]


def fits(name: str, value: Any) -> None:
    """Fails unless the value is one of the document's schemas."""
    schema = {"$ref": f"#/components/schemas/{name}", "components": _COMPONENTS}
    validator: Any = Draft202012Validator(schema)
    validator.validate(value)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory, exact_llama: Path) -> Generator[str]:
    flags = ("--n-ctx", "256", "--tgi-max-total-tokens", "128", "--max-tokens-ceiling", "8")
    with serving_models(tmp_path_factory.mktemp("drawn"), exact_llama, flags=flags) as served:
        yield f"{served.url()}/tgi"


def check_body(path: str, kind: str, body: bytes) -> None:
    """The body of a 200."""
    if path == "/health":
        assert body == b""
    elif path == "/metrics":
        assert kind.startswith("text/plain")
    elif kind.startswith("text/event-stream"):
        for event in payloads(body):
            if event != "[DONE]":
                check_event(path, json.loads(event))
    else:
        value: Any = json.loads(body)
        if path == "/":
            # The document declares no list; it is one, and clients rely on it.
            [value] = value
        names = {
            "/": "GenerateResponse", "/generate": "GenerateResponse", "/info": "Info",
            "/tokenize": "TokenizeResponse", "/v1/chat/completions": "ChatCompletion",
        }  # fmt: skip
        fits(names[path], value)


def check_event(path: str, value: Mapping[str, Any]) -> None:
    """An event of a stream."""
    if "error" in value:
        in_chat = path == "/v1/chat/completions"
        assert set(value) == ({"error"} if in_chat else {"error", "error_type"})
    elif path == "/v1/chat/completions":
        assert value["object"] == "chat.completion.chunk"
        assert {"id", "created", "model", "system_fingerprint", "choices"} <= value.keys()
    else:
        fits("StreamResponse", value)


@pytest.mark.drawn
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_no_documented_call_gets_anything_else(base: str, subtests: pytest.Subtests) -> None:
    operations = _SCHEMATHESIS.openapi.from_dict(_CORRECTED)
    draw_calls(operations, 8, subtests, lambda case: check_answer(case, case.call(base_url=base)))


def check_answer(case: Any, response: Any) -> None:
    """Fails unless it is one that the document knows, or a refusal of TGI's framework."""
    if case.method.lower() not in _DOCUMENT["paths"][case.path]:
        assert response.status_code == 405 or (case.method, case.path) == ("GET", "/")
        return
    kind: str = response.headers.get("content-type", [""])[0]
    if response.status_code == 200:
        check_body(case.path, kind, response.content)
    elif kind.startswith("text/plain"):
        assert response.status_code in (400, 415, 422)
        assert response.content.decode().startswith(_REFUSALS)
    else:
        assert response.status_code in (422, 424, 429)
        body: Any = json.loads(response.content)
        fits("ErrorResponse", body)
        assert body["error_type"] in _ERROR_TYPES


def test_valid_calls_are_served(base: str) -> None:
    """Drawn calls may be rejected; these must not be."""
    root, _, prefix = base.partition("/tgi")
    assert prefix == ""
    parameters: dict[str, Any] = {"max_new_tokens": 4, "details": True, "decoder_input_details": True}
    sampled = {**parameters, "do_sample": True, "best_of": 2, "top_n_tokens": 2, "watermark": True}
    bodies: list[tuple[str, dict[str, Any]]] = [
        ("/", {"inputs": "hello", "parameters": parameters}),
        ("/generate", {"inputs": "hello", "parameters": sampled}),
        ("/generate_stream", {"inputs": "hello", "parameters": {"max_new_tokens": 4, "details": True}}),
        ("/tokenize", {"inputs": "hello"}),
        (
            "/v1/chat/completions",
            {
                "model": "tgi",
                "messages": [{"role": "user", "content": "a"}],
                "max_tokens": 4,
                "logprobs": True,
            },
        ),
    ]
    for path, body in bodies:
        reply = post(root, f"/tgi{path}", body)
        assert reply.status == 200, reply.body
        check_body(path, reply.headers["content-type"], reply.body)
    fits("Info", get(root, "/tgi/info").json())
