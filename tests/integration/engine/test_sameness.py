"""How answers of an accelerator are compared: they may part at two tokens about as likely, and nowhere else."""

from __future__ import annotations

import msgspec
import pytest

from jan_serve.ipc.messages import EngineRequest
from tests.support import sameness
from tests.support.engine.worker import Choice, Worker, generate
from tests.support.sameness import assert_same, is_greedy

pytestmark = pytest.mark.integration


@pytest.fixture
def on_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sameness, "IS_ON_DEVICE", True)


def parted(choice: Choice, at: int, token: int) -> Choice:
    """A choice that has another token there."""
    tokens = [
        msgspec.structs.replace(info, id=token if i == at else info.id)
        for i, info in enumerate(choice.tokens)
    ]
    return Choice(choice.text + "?", tokens, choice.deltas, choice.finished)


@pytest.mark.usefixtures("on_device")
@pytest.mark.parametrize("at", [0, 7])
def test_an_unlikely_token_is_found(llama: Worker, at: int) -> None:
    request = generate("one long day", return_tokens=True, logprobs=5)
    expected = llama.run(request)[0].choice
    likely = {info.id for info in expected.tokens[at].top}
    other = next(token for token in range(300, 400) if token not in likely)
    assert_same(llama, request, expected, expected)
    with pytest.raises(AssertionError, match=f"tokens {other} and .* are not both likely"):
        assert_same(llama, request, parted(expected, at, other), expected)
    with pytest.raises(AssertionError):
        assert_same(llama, request, parted(expected, at, expected.tokens[at].top[4].id), expected)


@pytest.mark.usefixtures("on_device")
def test_answers_may_part_at_a_tie(llama: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    request = generate("one long day", return_tokens=True, logprobs=2)
    expected = llama.run(request)[0].choice
    first, second = expected.tokens[3].top
    monkeypatch.setattr(sameness, "_ERROR", first.logprob - second.logprob + 0.01)
    assert_same(llama, request, parted(expected, 3, second.id), expected)


def test_without_a_device_any_difference_is_found(llama: Worker) -> None:
    request = generate("one long day", return_tokens=True)
    expected = llama.run(request)[0].choice
    with pytest.raises(AssertionError):
        assert_same(llama, request, parted(expected, 3, 65), expected)


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (generate("a"), True),
        (generate("a", temperature=0.5), False),
        (generate("a", repeat_penalty=1.1), False),
        (generate("a", logit_bias={4: 1.0}), False),
    ],
)
def test_greedy(request_: EngineRequest, *, expected: bool) -> None:
    assert is_greedy(request_) == expected
