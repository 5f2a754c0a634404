"""`options` of requests: types, ranges and defaults."""

from __future__ import annotations

from typing import Any

import pytest

from jan_serve.core.request import SamplingParams, StopConditions
from jan_serve.dialects.ollama.common import parse_options
from jan_serve.dialects.shared.wire_types import MAX_INT
from jan_serve.errors import InvalidRequest

DEFAULTS: dict[str, Any] = {"temperature": 0.8, "top_k": 40, "top_p": 0.9}


@pytest.mark.parametrize(
    ("options", "sampling", "stopping"),
    [
        ({}, {}, {}),
        (None, {}, {}),
        ({"temperature": 0, "seed": 5}, {"temperature": 0.0, "seed": 5}, {}),
        ({"top_k": 3.0, "top_p": 1, "min_p": 0.25}, {"top_k": 3, "top_p": 1.0, "min_p": 0.25}, {}),
        ({"top_k": -1, "typical_p": 0.5}, {"top_k": 0, "typical_p": 0.5}, {}),
        ({"repeat_penalty": 1.5, "repeat_last_n": -1}, {"repeat_penalty": 1.5, "repeat_last_n": -1}, {}),
        ({"presence_penalty": -1, "frequency_penalty": 2}, {"presence_penalty": -1.0, "frequency_penalty": 2.0}, {}),
        ({"num_predict": 7, "stop": ["a", "b"]}, {}, {"max_tokens": 7, "stop": ("a", "b")}),
        ({"num_predict": -1}, {}, {}),
        ({"num_predict": -2}, {}, {}),
        ({"num_predict": 0, "stop": "x"}, {}, {"stop": ("x",)}),
        ({"temperature": None, "num_gpu": 99, "use_mmap": True, "num_thread": 2, "mirostat": 2}, {}, {}),
        ({"seed": -1}, {"seed": None}, {}),
        ({"seed": 1 << 33}, {"seed": 4}, {}),
        ({"seed": -2}, {"seed": 0xFFFFFFFC}, {}),
        ({"seed": 0xFFFFFFFD}, {"seed": 0xFFFFFFFD}, {}),
        ({"typical_p": 0}, {"typical_p": 1.0}, {}),
        ({"top_k": 1 << 40, "repeat_last_n": 1 << 40}, {"top_k": MAX_INT, "repeat_last_n": MAX_INT}, {}),
        ({"repeat_last_n": -9, "num_predict": 1 << 40}, {"repeat_last_n": -1}, {"max_tokens": MAX_INT}),
        ({"num_predict": 1e300}, {}, {"max_tokens": MAX_INT}),
        ({"unheard_of": {"a": 1}}, {}, {}),
    ],
)  # fmt: skip
def test_options(options: Any, sampling: dict[str, Any], stopping: dict[str, Any]) -> None:
    found = parse_options(options)
    assert found.sampling == SamplingParams(**(DEFAULTS | sampling))
    assert found.stopping == StopConditions(**stopping)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"temperature": "hot"}, 'option "temperature" must be of type float32'),
        ({"temperature": True}, 'option "temperature" must be of type float32'),
        ({"num_predict": 1.5}, 'option "num_predict" must be of type integer'),
        ({"num_ctx": "8k"}, 'option "num_ctx" must be of type integer'),
        ({"stop": [1]}, 'option "stop" must be of type array'),
        ({"use_mmap": 1}, 'option "use_mmap" must be of type boolean'),
        ({"temperature": -1}, 'option "temperature" must be from 0 to 100'),
        ({"top_p": 1.5}, 'option "top_p" must be from 0 to 1'),
        ({"repeat_penalty": 0}, 'option "repeat_penalty" must be above 0; 1 is off'),
        ({"temperature": 10**400}, 'option "temperature" must be from 0 to 100'),
        ({"stop": ["a"] * 65}, "stop: has 65 items, the limit is 64"),
        ({"stop": [""]}, "stop: an empty text would end every answer at once"),
    ],
)
def test_options_that_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_options(options)
    assert (caught.value.message, caught.value.param) == (text, next(iter(options)))


def test_what_the_request_sets_is_known_from_defaults() -> None:
    """Settings of the model replace the others."""
    found = parse_options({"temperature": 0.8, "num_predict": -1, "num_ctx": 9, "top_p": None})
    assert (found.given, found.num_ctx) == ({"temperature", "max_tokens"}, 9)
    assert parse_options(None).given == frozenset()
