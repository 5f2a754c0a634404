"""Parts of models on two and three devices: as planned, with the answers of the CPU, and without a lost one."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from jan_serve.core.placement import PlacementOptions
from jan_serve.errors import InsufficientMemory, SettingsError
from jan_serve.store.gguf.model_file import read_model_file
from tests.integration.rpc.lending import Lender, lending
from tests.support.engine.worker import Worker, WorkerEnded, generate, running_worker
from tests.support.gguf.models import EXACT

pytestmark = pytest.mark.integration
MIB = 1 << 20
ALL = PlacementOptions(n_gpu_layers=-1)


def settings_of(path: Path, lenders: Sequence[Lender], **values: Any) -> dict[str, Any]:
    model = read_model_file(path)
    plain = {
        "n_ctx": 512, "parallel": 2, "cache_sequences": 2, "n_batch": 64, "n_ubatch": 64, "n_ctx_train": 512,
        "parts": model.parts, "k_elements": model.k_elements, "v_elements": model.v_elements,
        "rpc": tuple(each.endpoint for each in lenders),
    }  # fmt: skip
    return {**EXACT, **plain, **values}


def answer(worker: Worker) -> list[int]:
    (result,) = worker.run(generate("once upon a time", max_tokens=32, return_tokens=True))
    assert result.error is None
    return result.choices[0].ids


@cache
def on_cpu(path: Path) -> list[int]:
    with running_worker(path, **settings_of(path, [])) as worker:
        assert worker.facts.device == "CPU"
        return answer(worker)


@pytest.mark.parametrize(
    ("model", "memory", "used"),
    [
        ("dense", [24, 16], 2),
        ("dense", [16, 14, 16], 3),
        ("mixture", [40, 24, 24], 3),
        ("recurrent", [12, 12], 2),
    ],
)
def test_parts_are_where_the_plan_says(
    request: pytest.FixtureRequest, model: str, memory: list[int], used: int
) -> None:
    path: Path = request.getfixturevalue(model)
    with ExitStack() as stack:
        lenders = [stack.enter_context(lending(size * MIB)) for size in memory]
        with running_worker(path, **settings_of(path, lenders, placement=ALL)) as worker:
            facts = worker.facts
            assert answer(worker) == on_cpu(path)
    parts = [part for part in facts.placement if part.kind == "rpc"]
    assert len(parts) == used
    for part, size in zip(parts, memory, strict=False):
        assert part.allocated == pytest.approx(part.total, rel=0.1), part
        assert part.allocated < size * MIB
    assert (parts[0].first, parts[-1].last, parts[-1].output) == (0, facts.n_layer - 1, True)
    assert facts.n_gpu_layers == facts.n_layer + 1


def test_experts_stay_where_a_token_reads_few_of_them(mixture: Path) -> None:
    with (
        lending(44 * MIB) as lender,
        running_worker(mixture, **settings_of(mixture, [lender], placement=ALL)) as worker,
    ):
        main, lent = worker.facts.placement
        assert answer(worker) == on_cpu(mixture)
    assert (lent.first, lent.last) == (0, 5)
    assert main.experts_first == 0
    assert lent.experts_last == 5
    assert main.experts_last is not None
    assert lent.experts_first == main.experts_last + 1


def test_blocks_whose_experts_stay_and_other_tensors_can_be_named(mixture: Path) -> None:
    options = PlacementOptions(n_gpu_layers=-1, n_cpu_moe=5, override_tensor=((r"blk\.0\.attn_q", "CPU"),))
    with (
        lending(200 * MIB) as lender,
        running_worker(mixture, **settings_of(mixture, [lender], placement=options)) as worker,
    ):
        _, lent = worker.facts.placement
        assert (lent.experts_first, lent.experts_last) == (5, 5)
        assert lent.allocated == pytest.approx(lent.total, rel=0.1)
        assert answer(worker) == on_cpu(mixture)


def test_text_made_while_a_device_computes_is_that_of_the_cpu(dense: Path) -> None:
    """One device that has all is handed its work, and computes while the worker goes on."""
    cases: list[dict[str, Any]] = [{"n": 2}, {"logprobs": 2, "return_tokens": True}, {"stop": ("e",)}]
    found: list[list[tuple[list[str], list[bytes]]]] = []
    with lending(80 * MIB) as lender:
        for lenders in ([lender], []):
            with running_worker(dense, **settings_of(dense, lenders, placement=ALL)) as worker:
                assert worker.facts.device == ("RPC0" if lenders else "CPU")
                results = worker.run(*(generate("once upon a time", max_tokens=40, **case) for case in cases))
            found.append([(each.texts, [info.piece for info in each.choices[0].tokens]) for each in results])
    assert found[0] == found[1]


def test_the_loss_of_a_device_ends_its_worker_alone(dense: Path) -> None:
    with lending(24 * MIB) as first, lending(16 * MIB) as second:
        settings = settings_of(dense, [first, second], placement=ALL)
        with (
            running_worker(dense, **settings) as worker,
            running_worker(dense, **settings_of(dense, [])) as other,
        ):
            answer(worker)
            first.kill()
            with pytest.raises(WorkerEnded, match="Remote RPC server crashed"):
                worker.run(generate("once upon a time", max_tokens=500))
            assert answer(other)
        # It loads on what is left.
        with running_worker(dense, **settings_of(dense, [first, second])) as worker:
            assert [device.description for device in worker.facts.devices if device.kind == "rpc"] == [
                second.endpoint
            ]
            assert answer(worker) == on_cpu(dense)


def test_two_models_share_a_device(dense: Path) -> None:
    with lending(48 * MIB) as lender:
        settings = settings_of(dense, [lender], placement=ALL)
        with running_worker(dense, **settings) as one, running_worker(dense, **settings) as two:
            free = [worker.facts.placement[1].memory for worker in (one, two)]
            assert free[0] - free[1] > 15 * MIB
            assert answer(one) == answer(two)


def test_a_required_accelerator_that_is_gone_or_too_small(dense: Path) -> None:
    with lending(MIB) as lender:
        options = PlacementOptions(require_accelerator=True)
        settings = settings_of(dense, [lender], placement=options)
        with pytest.raises(InsufficientMemory, match="no layer of the model fits the accelerators: RPC0 has"):
            running_worker(dense, **settings).__enter__()
        lender.kill()
        with (
            pytest.raises(
                SettingsError, match=f"{lender.endpoint}: it cannot be reached: Connection refused"
            ),
            running_worker(dense, **settings_of(dense, [lender], placement=options)),
        ):
            pass
