"""Texts for bodies that do not fit: path, reason and position."""

from __future__ import annotations

import msgspec
import pytest
from pydantic import BaseModel, ValidationError

from jan_serve.dialects.tgi.chat.wire import ChatRequest
from jan_serve.dialects.tgi.completions.wire import CompletionRequest
from jan_serve.dialects.tgi.errors import deserialize_error
from jan_serve.dialects.tgi.generate.wire import GenerateRequest

NATIVE: dict[str, str] = {
    "{}": "missing field `inputs` at line 1 column 2",
    "[]": "invalid type: sequence, expected a map at line 1 column 0",
    '{"inputs": null}': "inputs: invalid type: null, expected a string at line 1 column 15",
    '{"inputs": 5}': "inputs: invalid type: integer `5`, expected a string at line 1 column 12",
    '{"inputs": [1]}': "inputs: invalid type: sequence, expected a string at line 1 column 11",
    '{"inputs": "a", "parameters": null}': (
        "parameters: invalid type: null, expected a map at line 1 column 34"
    ),
    '{"inputs":"a","parameters":{\n"top_k":"secret"}}': (
        "parameters.top_k: invalid type: string, expected an integer at line 2 column 16"
    ),
    '{"inputs":"a","parameters":{"seed":-1}}': (
        "parameters.seed: must be from 0 to 18446744073709551615 at line 1 column 37"
    ),
    '{"inputs":"a","parameters":{"best_of":1.5}}': (
        "parameters.best_of: invalid type: floating point `1.5`, expected an integer at line 1 column 41"
    ),
    '{"inputs":"a","parameters":{"watermark":"x"}}': (
        "parameters.watermark: invalid type: string, expected a boolean at line 1 column 43"
    ),
    '{"inputs":"a","parameters":{"top_p":true}}': (
        "parameters.top_p: invalid type: boolean `true`, expected a number at line 1 column 40"
    ),
    '{"inputs":"a","parameters":{"stop":["a",{}]}}': (
        "parameters.stop[1]: invalid type: map, expected a string at line 1 column 40"
    ),
    '{"inputs":"a","parameters":{"grammar":{"type":"gbnf","value":""}}}': (
        "parameters.grammar: unknown variant, expected one of `json`, `json_object`, `regex`, `json_schema`"
        " at line 1 column 64"
    ),
    '{"inputs":"a","parameters":{"grammar":{"type":"regex","value":1}}}': (
        "parameters.grammar.value: invalid type: integer `1`, expected a string at line 1 column 63"
    ),
    '{"inputs":"a","parameters":{"grammar":{"value":{}}}}': (
        "parameters.grammar: missing field `type` at line 1 column 50"
    ),
    '{"inputs":"a","parameters":{"grammar":{"type":"json_schema","value":{}}}}': (
        "parameters.grammar.value: missing field `schema` at line 1 column 70"
    ),
    '{"parameters":{"top_k":"x"},"inputs":1}': (
        "parameters.top_k: invalid type: string, expected an integer at line 1 column 26"
    ),
}
CHAT: dict[str, str] = {
    '{"messages":"a"}': "messages: invalid type: string, expected a sequence at line 1 column 15",
    '{"messages":[{"content":"a"}]}': "messages[0]: missing field `role` at line 1 column 28",
    '{"messages":[{"role":"user"}]}': (
        "messages[0]: data did not match any variant of untagged enum MessageBody at line 1 column 28"
    ),
    '{"messages":[{"role":"user","content":null}]}': (
        "messages[0]: data did not match any variant of untagged enum MessageBody at line 1 column 43"
    ),
    '{"messages":[{"role":"user","content":5}]}': (
        "messages[0].content: invalid type: integer `5`, expected a string or a sequence at line 1 column 39"
    ),
    '{"messages":[{"role":"user","content":[{"type":"text"}]}]}': (
        "messages[0].content[0]: missing field `text` at line 1 column 54"
    ),
    '{"messages":[{"role":"user","content":[{"type":"audio"}]}]}': (
        "messages[0].content[0]: unknown variant, expected one of `text`, `image_url` at line 1 column 55"
    ),
    '{"messages":[],"stream_options":null}': (
        "stream_options: invalid type: null, expected a map at line 1 column 36"
    ),
    '{"messages":[],"max_tokens":1,"max_completion_tokens":1}': (
        "duplicate field `max_tokens` at line 1 column 56"
    ),
}
COMPLETION: dict[str, str] = {
    '{"prompt":[]}': (
        "prompt: Empty array detected. Do not use an empty array for the prompt. at line 1 column 12"
    ),
    '{"prompt":[1]}': "prompt[0]: invalid type: integer `1`, expected a string at line 1 column 12",
    '{"prompt":{}}': "prompt: invalid type: map, expected a string or a sequence at line 1 column 10",
}
CASES = [
    (model, body, words)
    for model, table in ((GenerateRequest, NATIVE), (ChatRequest, CHAT), (CompletionRequest, COMPLETION))
    for body, words in table.items()
]


@pytest.mark.parametrize(("model", "body", "words"), CASES)
def test_words(model: type[BaseModel], body: str, words: str) -> None:
    value = msgspec.json.decode(body)
    with pytest.raises(ValidationError) as refused:
        model.model_validate(value)
    assert deserialize_error(refused.value.errors(), value, body.encode()) == words


def test_a_place_that_takes_long_to_find_is_left_out() -> None:
    body = '{"x":[' + "[]," * 100_000 + '0],"inputs":1}'
    value = msgspec.json.decode(body)
    with pytest.raises(ValidationError) as refused:
        GenerateRequest.model_validate(value)
    found = deserialize_error(refused.value.errors(), value, body.encode())
    assert found == "inputs: invalid type: integer `1`, expected a string"


def test_numbers_are_cut() -> None:
    body = '{"inputs":' + "9" * 4000 + "}"
    value = msgspec.json.decode(body)
    with pytest.raises(ValidationError) as refused:
        GenerateRequest.model_validate(value)
    found = deserialize_error(refused.value.errors(), value, body.encode())
    assert found == "inputs: invalid type: integer `…`, expected a string at line 1 column 4010"
