"""LoRA adapters: a request's answer depends only on the request, whatever else runs or is cached."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from jan_serve.core.models import AdapterFacts
from jan_serve.errors import InvalidModel, InvalidRequest, UnsupportedOperation
from jan_serve.ipc.messages import AdapterFile, AdapterUse, EngineRequest, ShutdownRequest
from models.recipe.lora_file import llama_shapes, write_lora
from tests.support.engine.worker import Result, Worker, generate, running_worker
from tests.support.gguf.models import EXACT

pytestmark = pytest.mark.integration

ONE, TWO = AdapterUse(0, 1.0), AdapterUse(1, 0.5)
USES = [(), (ONE,), (TWO,), (AdapterUse(0, -0.5),), (ONE, TWO)]
PROMPT = "the people said that water was great and every good house has a large door"
LONG = " ".join(
    f"{PROMPT} {word}" for word in "some more words to make this longer than a state must be".split()
)


@pytest.fixture(scope="session")
def adapters(model_folder: Path) -> tuple[AdapterFile, ...]:
    """Two adapters for the tiny chat model."""
    files: list[AdapterFile] = []
    for number, name in enumerate(("one", "two")):
        path = model_folder / f"{name}.gguf"
        write_lora(path, llama_shapes(), seed=number)
        files.append(AdapterFile(name=name, path=str(path), scale=1.0 - number / 2))
    return tuple(files)


@pytest.fixture(scope="module")
def adapted(exact_llama: Path, adapters: tuple[AdapterFile, ...]) -> Generator[Worker]:
    """A worker with both, fewer slots than a round needs, and cells for about half of it."""
    with running_worker(
        exact_llama,
        adapters=adapters,
        n_ctx=1024,
        parallel=6,
        n_batch=64,
        n_ubatch=64,
        cache_sequences=6,
        cache_ram_bytes=1 << 24,
        **EXACT,
    ) as worker:
        yield worker


def asked(uses: tuple[AdapterUse, ...], prompt: str = PROMPT, **fields: Any) -> EngineRequest:
    return generate(prompt, adapters=uses, return_tokens=True, **fields)


def ids(result: Result) -> list[int]:
    return result.choice.ids


def test_each_adapter_gives_another_text(adapted: Worker) -> None:
    assert adapted.facts.adapters == (AdapterFacts("one", 1.0), AdapterFacts("two", 0.5))
    answers = [tuple(ids(adapted.run(asked(uses))[0])) for uses in USES]
    assert len(set(answers)) == len(USES)


def test_a_batch_of_all_gives_what_each_gives_alone(exact_llama: Path, adapted: Worker) -> None:
    choose = random.Random(5)
    rounds = [
        (
            USES[number % len(USES)],
            f"{PROMPT} {choose.choice(['a', 'b', LONG[:120]])}",
            choose.choice([3, 20, 40]),
        )
        for number in range(30)
    ]
    alone = {
        key: ids(adapted.run(asked(key[0], key[1], max_tokens=key[2]))[0]) for key in dict.fromkeys(rounds)
    }
    together = adapted.run(*(asked(uses, prompt, max_tokens=count) for uses, prompt, count in rounds))
    assert [ids(result) for result in together] == [alone[key] for key in rounds]
    # Without an adapter the answer equals that of a worker without adapters.
    with running_worker(exact_llama, n_ctx=1024, parallel=2, **EXACT) as plain:
        key = next(key for key in rounds if key[0] == ())
        assert ids(plain.run(asked((), key[1], max_tokens=key[2]))[0]) == alone[key]


def test_prefixes_are_shared_under_the_same_adapters_only(adapted: Worker) -> None:
    prompt = "a prompt that only this test has, so that nothing of it is in the cache before"
    first = {uses: adapted.run(asked(uses, prompt))[0].usage for uses in USES}
    assert {usage.cached_tokens for usage in first.values()} == {0}
    again = {uses: adapted.run(asked(uses, prompt))[0].usage for uses in USES}
    assert all(usage.cached_tokens == usage.prompt_tokens - 1 for usage in again.values())


def test_a_sequence_waits_for_a_prefill_under_its_own_adapter_only(adapted: Worker) -> None:
    prompt = "another prompt of this test alone, which four requests have " + LONG[:200]
    results = adapted.run(*(asked(uses, prompt, max_tokens=2) for uses in ((), (ONE,), (), (ONE,))))
    cached = [result.usage.cached_tokens for result in results]
    assert cached[0] == cached[1] == 0
    assert cached[2] >= results[2].usage.prompt_tokens - 1 and cached[3] >= results[3].usage.prompt_tokens - 1
    assert ids(results[0]) == ids(results[2]) != ids(results[1]) == ids(results[3])


def test_scored_prompts_are_of_the_adapter(adapted: Worker) -> None:
    def scores(uses: tuple[AdapterUse, ...]) -> list[float | None]:
        scored = adapted.run(asked(uses, prompt_logprobs=0, max_tokens=1))[0].scored
        assert scored is not None
        return [token.logprob for token in scored.tokens]

    together = adapted.run(*(asked(uses, prompt_logprobs=0, max_tokens=1) for uses in USES))
    assert len({tuple(scores(uses)) for uses in USES}) == len(USES)
    for uses, result in zip(USES, together, strict=True):
        assert result.scored is not None
        assert [token.logprob for token in result.scored.tokens] == pytest.approx(
            scores(uses), abs=1e-4, nan_ok=True
        )


def test_drafts_and_adapters(exact_llama: Path, adapters: tuple[AdapterFile, ...]) -> None:
    """Repetitive text, which prompt lookup drafts: the answers are those without drafts."""
    prompt = "say it again " * 12
    with running_worker(exact_llama, adapters=adapters, n_ctx=2048, prompt_lookup="on", **EXACT) as worker:
        drafted = worker.run(*(asked(uses, prompt, max_tokens=60) for uses in USES))
    with running_worker(exact_llama, adapters=adapters, n_ctx=2048, prompt_lookup="off", **EXACT) as worker:
        plain = [worker.run(asked(uses, prompt, max_tokens=60))[0] for uses in USES]
    assert [ids(result) for result in drafted] == [ids(result) for result in plain]


def test_states_on_disk_are_kept_apart(
    exact_llama: Path, adapters: tuple[AdapterFile, ...], tmp_path: Path
) -> None:
    settings: dict[str, Any] = {
        "adapters": adapters, "n_ctx": 1024, "parallel": 2, "cache_dir": str(tmp_path), "cache_disk_bytes": 1 << 28,
        **EXACT,
    }  # fmt: skip
    with running_worker(exact_llama, **settings) as worker:
        before = ids(worker.run(asked((ONE,), LONG))[0])
        worker.send(ShutdownRequest())
        assert worker.process.wait(30.0) == 0
    with running_worker(exact_llama, **settings) as worker:
        base, other, same = (worker.run(asked(uses, LONG))[0] for uses in ((), (TWO,), (ONE,)))
    assert (base.usage.cached_tokens, other.usage.cached_tokens) == (0, 0)
    assert same.usage.cached_tokens > 0
    assert ids(same) == before != ids(base) != ids(other)


def test_a_hybrid_model_with_adapters(exact_hybrid: Path, tmp_path: Path) -> None:
    """Its states cannot be cut, and are kept as a whole, each under its adapter."""
    path = tmp_path / "hybrid-lora.gguf"
    shapes = {f"blk.{layer}.ffn_down.weight": (64, 128) for layer in range(3)}
    write_lora(path, shapes, architecture="lfm2")
    with running_worker(
        exact_hybrid, adapters=(AdapterFile(name="one", path=str(path)),), n_ctx=1024, parallel=4, **EXACT
    ) as worker:
        alone = [ids(worker.run(asked(uses))[0]) for uses in ((), (ONE,))]
        together = [ids(result) for result in worker.run(*(asked(uses) for uses in ((), (ONE,), (), (ONE,))))]
    assert alone[0] != alone[1]
    assert together == [*alone, *alone]


def test_embeddings_under_an_adapter(adapted: Worker) -> None:
    base, one = adapted.embed("hello"), adapted.embed("hello", adapters=(ONE,))
    assert base.vectors != one.vectors
    assert adapted.embed("hello").vectors == base.vectors


def test_what_the_worker_refuses(adapted: Worker) -> None:
    with pytest.raises(InvalidRequest, match="there is no adapter 2"):
        assert adapted.run(asked((AdapterUse(2, 1.0),)))[0].text
    with pytest.raises(InvalidRequest, match="there is no adapter 9"):
        adapted.embed("hello", adapters=(AdapterUse(9, 1.0),))
    with pytest.raises(UnsupportedOperation, match="cannot move between servers"):
        assert adapted.run(asked((ONE,), keep_state=True))[0].text


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-2000])


def _of_another_size(path: Path) -> None:
    write_lora(path, llama_shapes(n_embd=32))


def _of_another_model(path: Path) -> None:
    write_lora(path, {"blk.7.attn_q.weight": (64, 64)})


def _activated(path: Path) -> None:
    write_lora(path, llama_shapes(), metadata={"adapter.alora.invocation_tokens": [1, 2]})


DAMAGE: list[tuple[Callable[[Path], None], str]] = [
    (_cut, "`odd` does not go with this model: .*corrupted or incomplete"),
    (_of_another_size, "`odd` does not go with this model: tensor 'blk.* has incorrect shape"),
    (
        _of_another_model,
        "`odd` does not go with this model: LoRA tensor 'blk.7.* does not exist in base model",
    ),
    (lambda path: write_lora(path, llama_shapes(), architecture="qwen2"), "`odd` .*arch mismatch"),
    (_activated, r"`odd` is an activated one \(aLoRA\)"),
    (Path.unlink, "`odd` cannot be read: No such file"),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGE)
def test_an_adapter_that_does_not_fit_is_named(
    exact_llama: Path, tmp_path: Path, damage: Callable[[Path], None], message: str
) -> None:
    path = tmp_path / "odd.gguf"
    write_lora(path, llama_shapes())
    damage(path)
    with (
        pytest.raises(InvalidModel, match=message),
        running_worker(exact_llama, adapters=(AdapterFile(name="odd", path=str(path)),), **EXACT),
    ):
        pass
