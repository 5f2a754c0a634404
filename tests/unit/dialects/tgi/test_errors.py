"""What TGI's routes say of bodies that do not fit: the place and the reason."""

from __future__ import annotations

import msgspec
import pytest
from pydantic import BaseModel, ValidationError

from jan_serve.dialects.tgi.chat.parse import ChatRequest
from jan_serve.dialects.tgi.completions import CompletionRequest
from jan_serve.dialects.tgi.errors import render_error
from jan_serve.dialects.tgi.generate.parse import GenerateRequest
from jan_serve.http.errors import validation_problem

START = "Failed to deserialize the JSON body into the target type: "
NATIVE: dict[str, str] = {
    "{}": "inputs: Field required",
    "[]": "body: Input should be an object",
    '{"inputs": null}': "inputs: Input should be a valid string",
    '{"inputs": "a", "parameters": null}': "parameters: Input should be an object",
    '{"inputs":"a","parameters":{\n"top_k":"secret"}}': "parameters.top_k: Input should be a valid integer",
    '{"inputs":"a","parameters":{"seed":-1}}': "parameters.seed: must be from 0 to 18446744073709551615",
    '{"inputs":"a","parameters":{"stop":["a",{}]}}': "parameters.stop[1]: Input should be a valid string",
    '{"inputs":"a","parameters":{"grammar":{"type":"gbnf","value":""}}}': "parameters.grammar: 'type' must be one of",
    '{"inputs":"a","parameters":{"grammar":{"value":{}}}}': "parameters.grammar: 'type' is needed",
    '{"inputs":"a","parameters":{"grammar":{"type":"json_schema","value":{}}}}': (
        "parameters.grammar.value.schema: Field required"
    ),
}
CHAT: dict[str, str] = {
    '{"messages":"a"}': "messages: Input should be a valid list",
    '{"messages":[{"content":"a"}]}': "messages[0].role: Field required",
    '{"messages":[{"role":"user"}]}': "messages[0]: data did not match any variant",
    '{"messages":[{"role":"user","content":5}]}': "messages[0].content: Input should be a valid string, or ",
    '{"messages":[{"role":"user","content":[{"type":"audio"}]}]}': "messages[0].content[0]: 'type' must be one of",
    '{"messages":[],"max_tokens":1,"max_completion_tokens":1}': "body: duplicate field `max_tokens`",
}
COMPLETION: dict[str, str] = {
    '{"prompt":[]}': "prompt: Empty array detected. Do not use an empty array for the prompt.",
    '{"prompt":[1]}': "prompt[0]: Input should be a valid string",
    '{"prompt":{}}': "prompt: Input should be a valid string, or Input should be a valid list",
}
CASES = [
    (model, body, words)
    for model, table in ((GenerateRequest, NATIVE), (ChatRequest, CHAT), (CompletionRequest, COMPLETION))
    for body, words in table.items()
]


@pytest.mark.parametrize(("model", "body", "words"), CASES)
def test_place_and_reason(model: type[BaseModel], body: str, words: str) -> None:
    value = msgspec.json.decode(body)
    with pytest.raises(ValidationError) as refused:
        model.model_validate(value)
    response = render_error(validation_problem(refused.value.errors(), value))
    text = bytes(response.body).decode()
    assert (response.status_code, response.media_type) == (422, "text/plain")
    assert text.startswith(START + words)
    assert "secret" not in text
