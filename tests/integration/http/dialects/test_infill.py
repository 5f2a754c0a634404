"""/infill, /apply-template and /props as editors use them, on the built-in model, which knows FIM."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.integration.http.support import error_of, payloads
from tests.support.clients.raw_http import get, post

GAP: dict[str, Any] = {"input_prefix": "def add(a, b):\n    return ", "input_suffix": "\n", "temperature": 0}


@pytest.fixture
def url(builtin_url: str) -> str:
    return builtin_url


def fill(url: str, **fields: Any) -> dict[str, Any]:
    reply = post(url, "/infill", {**GAP, "n_predict": 24, **fields})
    assert reply.status == 200, reply.body
    body: dict[str, Any] = reply.json()
    return body


def test_a_gap_is_filled(url: str) -> None:
    body = fill(url)
    assert body["content"].strip()
    assert body["stop"] is True
    assert body["stop_type"] in ("eos", "limit")
    assert body["tokens_predicted"] > 0
    assert body["tokens_evaluated"] > 5
    assert body["truncated"] is False
    assert body["timings"]["predicted_n"] == body["tokens_predicted"]


def test_a_stream_is_the_whole_in_pieces(url: str) -> None:
    whole = fill(url)
    events = [
        json.loads(event)
        for event in payloads(post(url, "/infill", {**GAP, "n_predict": 24, "stream": True}).body)
    ]
    assert "".join(event["content"] for event in events) == whole["content"]
    assert [event["stop"] for event in events] == [False] * (len(events) - 1) + [True]
    assert events[-1]["tokens_predicted"] == whole["tokens_predicted"]


def test_a_warm_up_reads_the_prompt_and_the_next_request_finds_it(url: str) -> None:
    prefix = "".join(f"value_{number} = {number}\n" for number in range(30))
    warm = fill(url, input_prefix=prefix, n_predict=0)
    assert (warm["content"], warm["tokens_predicted"]) == ("", 0)
    again = fill(url, input_prefix=prefix, n_predict=2)
    assert again["tokens_cached"] >= warm["tokens_evaluated"] - 1


def test_what_begins_the_gap_and_other_files_are_read(url: str) -> None:
    extra = [{"filename": "a.py", "text": "x = 1\n"}, {"filename": "b.py", "text": "y = 2\n"}]
    plain = fill(url, n_predict=1)
    longer = fill(url, n_predict=1, prompt="a + ", input_extra=extra)
    assert longer["tokens_evaluated"] > plain["tokens_evaluated"] + 8


def test_files_go_first_where_the_context_is_short(url: str) -> None:
    extra = [{"filename": "big.py", "text": "value = 123\n" * 2000}, {"filename": "b.py", "text": "y = 2\n"}]
    body = fill(url, n_predict=4, input_extra=extra)
    assert body["truncated"] is True
    assert body["tokens_evaluated"] < 200
    far = fill(url, n_predict=4, input_prefix="x = 1\n" * 3000 + GAP["input_prefix"])
    assert far["truncated"] is True


@pytest.mark.parametrize("samplers", [["top_k", "top_p", "infill"], "kpi", ["temperature"]], ids=str)
def test_samplers_are_chosen(url: str, samplers: Any) -> None:
    body = fill(url, samplers=samplers, seed=7, temperature=0.8)
    assert body == {
        **fill(url, samplers=samplers, seed=7, temperature=0.8),
        "timings": body["timings"],
        "tokens_cached": body["tokens_cached"],
    }


@pytest.mark.parametrize("name", ["typ_p", "typical_p"])
def test_a_sampler_with_two_names_is_listed_once(url: str, name: str) -> None:
    settings = fill(url, samplers=[name, "top_k"], n_predict=1)["generation_settings"]
    assert sorted(settings["samplers"]) == ["top_k", "typ_p"]
    assert fill(url, n_predict=1)["generation_settings"]["samplers"].count("typ_p") == 1


def test_an_unknown_sampler_is_refused(url: str) -> None:
    reply = post(url, "/infill", {**GAP, "samplers": ["magic"]})
    assert reply.status == 400
    assert "magic" in error_of(reply)["message"]


def test_a_text_with_a_line_break_ends_in_time(url: str) -> None:
    body = fill(
        url,
        input_suffix="",
        prompt="\n",
        n_predict=500,
        t_max_predict_ms=1,
        temperature=2,
        samplers="t",
        seed=1,
    )
    assert body["tokens_predicted"] < 500


def test_a_chat_becomes_its_prompt(url: str) -> None:
    chat = {"messages": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Well,"}]}
    reply = post(url, "/apply-template", chat)
    assert reply.json() == {"prompt": "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\nWell,"}


def test_props_tell_of_the_model(url: str) -> None:
    props = get(url, "/props").json()
    assert props["default_generation_settings"]["n_ctx"] >= 512
    assert "<|im_start|>" in props["chat_template"]
    assert props["modalities"] == {"vision": False, "audio": False}
    assert props["total_slots"] >= 1
