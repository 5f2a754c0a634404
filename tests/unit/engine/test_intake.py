"""Intake: prompts to tokens, limits, seeds, and requests that it rejects."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from jan_serve.core.kv_transfer import SequenceState
from jan_serve.core.messages import AudioPiece, ImagePiece, PromptPiece
from jan_serve.core.request import SamplingParams, StopConditions
from jan_serve.engine.cache.state_transfer import StateShelf
from jan_serve.engine.intake import Intake
from jan_serve.engine.tokenizing import finish
from jan_serve.errors import (
    ContextLengthExceeded,
    InvalidRequest,
    InvalidState,
    UnsupportedContent,
    UnsupportedOperation,
)
from jan_serve.ipc.messages import AdapterUse, CountRequest, EngineRequest, EngineSettings, ResumeState
from tests.unit.engine.small_vocab import BOS, LETTERS, small_vocab

N_CTX = 16


def intake(shelf: StateShelf | None = None, **settings: Any) -> Intake:
    return Intake(small_vocab(), EngineSettings(**settings), n_ctx=N_CTX, shelf=shelf)


def request_of(*prompt: str | tuple[int, ...], **fields: Any) -> EngineRequest:
    return EngineRequest(id=1, prompt=prompt, cache_salt="", **fields)


@pytest.mark.parametrize(
    ("prompt", "fields", "text"),
    [
        (("ab",), {}, "<ab"),
        (("<ab",), {}, "<ab"),  # not doubled
        (("ab",), {"add_special": False}, "ab"),
        (("",), {"add_special": False}, "<"),  # a model needs a token to start from
        (("a", (4, 5), "d"), {"add_special": False}, "acdd"),
    ],
)
def test_a_prompt_becomes_tokens(
    prompt: tuple[str | tuple[int, ...], ...], fields: dict[str, Any], text: str
) -> None:
    [sequence] = finish(intake().prepare(request_of(*prompt, **fields)))
    tokens = sequence.tokens.view()
    assert "".join(LETTERS[token] for token in tokens) == text


@pytest.mark.parametrize(
    ("piece", "sense"),
    [(ImagePiece(width=4, height=4, digest="ab"), "see"), (AudioPiece(digest="ab"), "hear")],
)
def test_a_model_without_a_projector_neither_sees_nor_hears(piece: PromptPiece, sense: str) -> None:
    with pytest.raises(UnsupportedContent, match=f"messages: this model cannot {sense}"):
        finish(intake().count(CountRequest(id=1, prompt=("a", piece), prompt_param="messages")))


@pytest.mark.parametrize(
    ("length", "max_tokens", "ceiling", "max_new", "fills_context"),
    [
        (10, None, 0, 6, True),
        (10, 3, 0, 3, False),
        (10, 30, 0, 6, True),
        (10, 6, 0, 6, False),
        (10, None, 2, 2, False),
        (10, 1, 2, 1, False),
        (16, 0, 0, 0, False),
    ],
)
def test_the_context_the_request_and_the_server_bound_an_answer(
    length: int, max_tokens: int | None, ceiling: int, max_new: int, *, fills_context: bool
) -> None:
    request = request_of((BOS,) * length, stopping=StopConditions(max_tokens=max_tokens))
    [sequence] = finish(intake(max_tokens_ceiling=ceiling).prepare(request))
    assert (sequence.max_new, sequence.fills_context) == (max_new, fills_context)


@pytest.mark.parametrize(("length", "max_tokens"), [(17, None), (17, 0), (16, 1), (16, None)])
def test_a_prompt_that_leaves_no_room_is_rejected(length: int, max_tokens: int | None) -> None:
    request = request_of((BOS,) * length, stopping=StopConditions(max_tokens=max_tokens))
    with pytest.raises(ContextLengthExceeded):
        finish(intake().prepare(request))


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 0}, "n"),
        ({"n": 2, "keep_state": True}, "n"),
        ({"stopping": StopConditions(stop=("",))}, "stop"),
        ({"stopping": StopConditions(stop_token_ids=(99,))}, "stop_token_ids"),
        ({"sampling": SamplingParams(logit_bias={99: 1.0})}, "logit_bias"),
        ({"sampling": SamplingParams(logit_bias={2: float("inf")})}, "logit_bias"),
        ({"sampling": SamplingParams(logit_bias={2: float("nan")})}, "logit_bias"),
        ({"prompt": ((99,),), "prompt_param": "input"}, "input"),
        ({"resume": ResumeState(1)}, "migration_request"),
    ],
    ids=str,
)
def test_an_invalid_request_is_rejected_with_its_field(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        finish(intake().prepare(msgspec.structs.replace(request_of("a"), **fields)))
    assert caught.value.param == param


def test_a_request_with_adapters_cannot_migrate() -> None:
    with pytest.raises(UnsupportedOperation, match="lora"):
        finish(intake().prepare(request_of("a", adapters=(AdapterUse(0, 1.0),), keep_state=True)))


class OneState:
    """A shelf with one state."""

    def __init__(self, state: SequenceState) -> None:
        self.state = state
        self.dropped: list[int] = []

    def take(self, _state: int) -> SequenceState:
        return self.state

    def drop(self, state: int) -> None:
        self.dropped.append(state)


@pytest.mark.parametrize(
    ("changes", "token", "message"),
    [
        ({}, None, None),
        ({}, 4, None),
        ({}, 5, "remote_token_id"),
        ({"tokens": (0, 3)}, None, "another prompt"),
        ({"logits": b"1234"}, None, "another vocabulary"),
        ({"next_token": 99}, None, "outside the vocabulary"),
    ],
    ids=str,
)
def test_a_resumed_state_must_match_the_request(
    changes: dict[str, Any], token: int | None, message: str | None
) -> None:
    logits = bytes(4 * len(LETTERS))
    state = SequenceState(tokens=(0, 2), seed=7, next_token=4, logits=logits, memory=memoryview(b""))
    shelf: Any = OneState(replace(state, **changes))
    request = request_of("a", resume=ResumeState(1, token), sampling=SamplingParams(temperature=0.5))
    if message is None:
        [sequence] = finish(intake(shelf).prepare(request))
        assert (sequence.seed, sequence.resumed is not None) == (7, True)
    else:
        with pytest.raises(InvalidState, match=message):
            finish(intake(shelf).prepare(request))
    assert shelf.dropped == ([] if message is None else [1]), "the engine drops what a sequence holds"
