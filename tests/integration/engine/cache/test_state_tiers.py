"""Sequences that leave the KV cache return from RAM, and after a restart from disk; answers do not change."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path
from typing import Any

import pytest

from jan_serve.ipc.messages import ShutdownRequest
from tests.support.engine.worker import Prompt, Worker, generate, running_worker
from tests.support.gguf.models import EXACT

pytestmark = pytest.mark.integration

LONG = " ".join(f"water {n} house {n * 7 % 50} door" for n in range(30))
OTHER = " ".join(f"people {n} think {n * 3 % 40} large" for n in range(30))


def answer(worker: Worker, prompt: Prompt, **fields: Any) -> tuple[str, int]:
    """Text, and the tokens of the prompt that were not computed again."""
    result = worker.run_one(prompt, max_tokens=8, ignore_eos=True, **fields)
    return result.text, result.usage.cached_tokens


def end(worker: Worker) -> None:
    """Stops the worker as the front does: a request, and it exits by itself."""
    worker.send(ShutdownRequest())
    assert worker.process.wait(30.0) == 0


def test_two_clients_with_long_prefixes_that_do_not_fit_together_both_stay_warm(exact_llama: Path) -> None:
    with running_worker(exact_llama, n_ctx=512, parallel=1, cache_ram_bytes=1 << 26, **EXACT) as worker:
        cold = {prompt: answer(worker, prompt)[0] for prompt in (LONG, OTHER)}
        assert worker.stats().saved_total == 1, "one of them had to leave the cells"
        for prompt in (LONG, OTHER, LONG, OTHER):
            text, cached = answer(worker, prompt)
            assert text == cold[prompt]
            assert cached > 200
        assert worker.stats().restored_total >= 3
        assert worker.stats().cache_ram_bytes > 0


def test_prefixes_are_shared_under_the_same_salt_only(exact_llama: Path, tmp_path: Path) -> None:
    """In cells, among running requests, in RAM, and on disk."""
    settings: dict[str, Any] = {"n_ctx": 1024, "parallel": 2, "cache_dir": str(tmp_path), **EXACT}
    salts = ("", "a", "b")
    with running_worker(exact_llama, **settings) as worker:
        first = {salt: answer(worker, LONG, cache_salt=salt) for salt in salts}
        assert {cached for _, cached in first.values()} == {0}
        assert len({text for text, _ in first.values()}) == 1
        assert all(answer(worker, LONG, cache_salt=salt)[1] > 200 for salt in salts)
        asks = [generate(OTHER, max_tokens=2, cache_salt=salt) for salt in ("a", "b", "a")]
        cached = [result.usage.cached_tokens for result in worker.run(*asks)]
        assert cached[:2] == [0, 0] and cached[2] > 200, "it waits for the prefill under its own salt"
        end(worker)
    with running_worker(exact_llama, **settings) as worker:
        assert answer(worker, LONG, cache_salt="c")[1] == 0
        for salt in salts:
            text, cached_tokens = answer(worker, LONG, cache_salt=salt)
            assert (text, cached_tokens > 200) == (first[salt][0], True)


def test_a_state_file_without_a_state_is_not_taken_for_tokens(exact_llama: Path, tmp_path: Path) -> None:
    """Its digest is right, so its writer knew the format."""
    settings: dict[str, Any] = {"n_ctx": 512, "parallel": 1, "cache_dir": str(tmp_path), **EXACT}
    with running_worker(exact_llama, **settings) as worker:
        text, _ = answer(worker, LONG)
        end(worker)
    [path] = tmp_path.rglob("*.state")
    content = path.read_bytes()
    n_tokens, n_bytes = struct.unpack_from("<QQ", content, 40)
    tokens, state = content[56 : 56 + 4 * n_tokens], content[-n_bytes:]
    shorter = tokens[:-64]
    for ids, data in ((tokens, b""), (shorter, state), (tokens + tokens[-64:], state)):
        body = struct.pack("<QQ", len(ids) // 4, len(data)) + ids + data
        path.write_bytes(content[:8] + hashlib.blake2b(body, digest_size=32).digest() + body)
        with running_worker(exact_llama, **settings) as worker:
            assert answer(worker, LONG) == (text, 0)
            worker.process.kill()
            worker.process.wait(30.0)


def test_no_tier_no_saving(exact_llama: Path) -> None:
    with running_worker(exact_llama, n_ctx=512, parallel=1, cache_ram_bytes=0, **EXACT) as worker:
        for prompt in (LONG, OTHER, LONG):
            assert answer(worker, prompt)[1] == 0
        assert worker.stats().saved_total == 0


@pytest.mark.parametrize("model", ["exact_llama", "exact_recurrent", "exact_hybrid"])
def test_a_prompt_is_still_there_after_a_restart(
    model: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    path: Path = request.getfixturevalue(model)
    settings: dict[str, Any] = {"n_ctx": 512, "parallel": 2, "cache_dir": str(tmp_path), **EXACT}
    with running_worker(path, **settings) as worker:
        first = worker.run_one(LONG, max_tokens=8, ignore_eos=True, return_tokens=True)
        longer = (*worker.tokenize(LONG).tokens, *first.choice.ids, *worker.tokenize("and then").tokens)
        end(worker)
    with running_worker(path, **settings) as worker:
        text, cached = answer(worker, longer)
        assert cached > 200
    with running_worker(path, **{**settings, "cache_dir": None}) as worker:
        assert answer(worker, longer) == (text, 0)


def test_a_prefix_that_several_share_is_written_once(exact_llama: Path, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"n_ctx": 512, "parallel": 1, "cache_dir": str(tmp_path), **EXACT}
    with running_worker(exact_llama, **settings) as worker:
        for end_ in ("first", "second"):
            answer(worker, LONG + end_)
        end(worker)
    assert len(list(tmp_path.glob("*/*.state"))) == 1
    with running_worker(exact_llama, **settings) as worker:
        assert answer(worker, LONG + "third")[1] > 200


def test_states_of_other_kv_types_are_not_used(exact_llama: Path, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"n_ctx": 512, "parallel": 1, "cache_dir": str(tmp_path), **EXACT}
    with running_worker(exact_llama, **settings) as worker:
        answer(worker, LONG)
        end(worker)
    with running_worker(exact_llama, **{**settings, "type_k": "f16"}) as worker:
        assert answer(worker, LONG)[1] == 0


def test_a_damaged_file_costs_only_the_computation(exact_llama: Path, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"n_ctx": 512, "parallel": 1, "cache_dir": str(tmp_path), **EXACT}
    with running_worker(exact_llama, **settings) as worker:
        cold = answer(worker, LONG)
        end(worker)
    [path] = tmp_path.glob("*/*.state")
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    with running_worker(exact_llama, **settings) as worker:
        assert answer(worker, LONG) == cold


@pytest.mark.parametrize("model", ["exact_recurrent", "exact_hybrid"])
def test_a_second_turn_does_not_prefill_the_first_again(model: str, request: pytest.FixtureRequest) -> None:
    """The answer is not part of the second prompt, as if a template left thoughts out."""
    path: Path = request.getfixturevalue(model)
    with running_worker(path, n_ctx=512, parallel=1, cache_sequences=1, **EXACT) as worker:
        eot = worker.facts.eog_token_ids[0]
        turn = (*worker.tokenize(LONG).tokens, eot)
        question = (*turn, *worker.tokenize("first").tokens)
        worker.run_one(question, max_tokens=8, ignore_eos=True)
        again = worker.run(generate((*turn, *worker.tokenize("another thing").tokens), ignore_eos=True))[0]
        assert again.usage.cached_tokens == len(turn)
        # Its only cached sequence belongs to the last answer, so this came from a checkpoint.
        assert worker.stats().restored_total == 1
    with running_worker(path, n_ctx=512, parallel=1, cache_ram_bytes=0, **EXACT) as worker:
        alone = worker.run(generate((*turn, *worker.tokenize("another thing").tokens), ignore_eos=True))[0]
        assert alone.text == again.text


def test_a_next_turn_without_the_answer_finds_its_prompt_after_a_sliding_window(exact_sliding: Path) -> None:
    """As if a template left thoughts out; a prompt with the answer finds that too."""
    with running_worker(exact_sliding, n_ctx=2048, parallel=1, idle_cells=0, **EXACT) as worker:
        turn = worker.tokenize(LONG).tokens
        done = worker.run_one(turn, max_tokens=40, ignore_eos=True, return_tokens=True)
        more = worker.tokenize("another thing").tokens
        answered = (*turn, *done.choice.ids)
        prompts = [(*turn, *more), (*answered, *more)]
        texts: list[str] = []
        # The last token of an answer is not computed.
        for prompt, length in zip(prompts, (len(turn), len(answered) - 1), strict=True):
            worker.run_one(OTHER, max_tokens=8)
            again = worker.run_one(prompt, max_tokens=8, ignore_eos=True)
            assert again.usage.cached_tokens == length
            texts.append(again.text)
    with running_worker(exact_sliding, n_ctx=2048, parallel=1, cache_ram_bytes=0, **EXACT) as worker:
        alone = [worker.run_one(prompt, max_tokens=8, ignore_eos=True).text for prompt in prompts]
    assert texts == alone


COPIES_FAST = {**EXACT, "flash_attn": "on", "idle_cells": 64}
"""Values lie transposed without flash attention, and are copied slowly."""


def test_finished_sequences_make_way_where_there_is_ram_for_them(exact_llama: Path) -> None:
    """A stream reads every cell in use, of any sequence."""
    with running_worker(exact_llama, n_ctx=8192, parallel=1, **COPIES_FAST) as worker:
        texts = [answer(worker, f"{number} {LONG}")[0] for number in range(5)]
        stats = worker.stats()
        assert stats.cells_used <= 400, "those of the last one, which may go on"
        assert stats.saved_total == 4
        for number, text in enumerate(texts):
            again, cached = answer(worker, f"{number} {LONG}")
            assert again == text
            assert cached > 200
        assert worker.stats().restored_total >= 4


def test_a_conversation_that_goes_on_alone_is_not_moved(exact_llama: Path) -> None:
    with running_worker(exact_llama, n_ctx=8192, parallel=2, **COPIES_FAST) as worker:
        tokens = worker.tokenize(LONG).tokens
        for turn in range(3):
            done = worker.run_one(tokens, max_tokens=8, ignore_eos=True, return_tokens=True)
            assert done.usage.cached_tokens > 200 or turn == 0
            tokens = (*tokens, *done.choice.ids, *worker.tokenize(f"and then {turn}").tokens)
        assert worker.stats().saved_total == worker.stats().restored_total == 0


def test_what_comes_back_from_ram_shares_the_cells_of_its_prefix(exact_llama: Path) -> None:
    with running_worker(exact_llama, n_ctx=8192, parallel=2, **COPIES_FAST) as worker:
        common = worker.tokenize(LONG).tokens
        first = (*common, *worker.tokenize(OTHER).tokens)
        second = (*common, *worker.tokenize(OTHER[::-1]).tokens)
        cold = {prompt: answer(worker, prompt)[0] for prompt in (first, second)}
        before = worker.stats()
        assert before.saved_total == 1, "the first one made way for the second one"
        assert answer(worker, first) == (cold[first], len(first) - 1)
        stats = worker.stats()
        assert stats.restored_total == 1
        assert stats.cells_used < len(first) + len(second) - len(common) + 50
        assert answer(worker, second)[0] == cold[second]


def test_what_a_sliding_window_lost_is_computed_again(exact_sliding: Path) -> None:
    """Saved states hold only the last window of such layers: cut to a shared prefix they hold nothing."""
    with running_worker(exact_sliding, n_ctx=4096, parallel=2, cache_ram_bytes=0, **EXACT) as worker:
        common = worker.tokenize(LONG).tokens
        tails = [worker.tokenize(text).tokens for text in (OTHER, OTHER[::-1], LONG[::-1], "and then")]
        prompts = [(*common, *tail) for tail in tails] + [(*common, *tails[0], *tails[1]), tuple(common)]
        cold = {prompt: answer(worker, prompt)[0] for prompt in reversed(prompts)}
    with running_worker(exact_sliding, n_ctx=4096, parallel=2, **COPIES_FAST) as worker:
        for prompt in (*prompts, *prompts, *reversed(prompts)):
            assert answer(worker, prompt)[0] == cold[prompt]
        assert worker.stats().saved_total > 0
    with running_worker(exact_sliding, n_ctx=4096, parallel=4, **EXACT) as worker:
        for _ in range(3):
            results = worker.run(*(generate(prompt, max_tokens=8, ignore_eos=True) for prompt in prompts))
            assert [result.text for result in results] == [cold[prompt] for prompt in prompts]
