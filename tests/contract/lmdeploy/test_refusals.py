"""LMDeploy's rejections over HTTP, in its words: flat bodies with status 400, streamed or not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.lmdeploy.support import post

pytestmark = pytest.mark.anyio

_GENERATE = "/lmdeploy/generate"
_CHAT = "/lmdeploy/v1/chat/completions"
_COMPLETIONS = "/lmdeploy/v1/completions"
_BODIES: dict[str, dict[str, Any]] = {
    _GENERATE: {"prompt": "a"},
    _CHAT: {"model": "fake", "messages": [{"role": "user", "content": "a"}]},
    _COMPLETIONS: {"model": "fake", "prompt": "a"},
}

REFUSED: dict[str, tuple[tuple[str, ...], dict[str, Any], str]] = {
    "both": ((_GENERATE,), {"input_ids": [1]}, "You must specify exactly one of prompt or input_ids"),
    "neither": ((_GENERATE,), {"prompt": None}, "You must specify exactly one of prompt or input_ids"),
    "empty prompt": ((_GENERATE,), {"prompt": ""}, "The prompt must not be an empty string"),
    "empty ids": ((_GENERATE,), {"prompt": None, "input_ids": []}, "The input_ids must not be an empty list"),
    "max_tokens": ((_GENERATE,), {"max_tokens": 0}, "The max_tokens 0 must be a positive integer."),
    "top_p": (tuple(_BODIES), {"top_p": 0}, "The top_p 0.0 must be in (0, 1]."),
    "temperature": (tuple(_BODIES), {"temperature": 3}, "The temperature 3.0 must be in [0, 2]"),
    "top_k": (tuple(_BODIES), {"top_k": -1}, "The top_k -1 cannot be a negative integer."),
    "n": ((_CHAT, _COMPLETIONS), {"n": 0}, "The n 0 must be a positive int."),
    "bias": (
        (_CHAT,),
        {"logit_bias": {"300": 1}},
        "token_id 300 in logit_bias contains out-of-vocab token id",
    ),
    "bias of a text": (
        (_CHAT,),
        {"logit_bias": {"a": 1}},
        "Found token_id in logit_bias that is not an integer or string representing an integer",
    ),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("case", REFUSED)
async def test_what_is_refused_has_lmdeploys_words(case: str, stream: bool) -> None:
    paths, fields, words = REFUSED[case]
    for path in paths:
        reply = await post(path, _BODIES[path] | fields | {"stream": stream})
        assert (reply.status_code, reply.json()) == (
            400,
            {
                "message": words,
                "type": "invalid_request_error",
                "code": 400,
                "param": None,
                "object": "error",
            },
        )


@pytest.mark.parametrize("path", [_CHAT, _COMPLETIONS])
async def test_keys_that_no_request_has_are_ignored(path: str) -> None:
    assert (await post(path, _BODIES[path] | {"kwargs": {}, "self": 1})).status_code == 200
