"""Where published models go on thirty machines. JAN_GOLDEN=write rewrites the table."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jan_serve.core.models.placement import PlacementOptions
from jan_serve.placement.machine import Device
from jan_serve.placement.planner import Plan, Planner
from jan_serve.placement.workload import ContextSizes, Workload
from tests.unit.placement.shapes import PARAMETERS, SHAPES

TABLE = Path(__file__).with_name("machines.txt")
GIB = 1 << 30
# Free memory in GiB of each device, and of main memory.
MACHINES: dict[str, tuple[list[tuple[str, float]], float]] = {
    "laptop 8": ([], 8), "laptop 16": ([], 16), "desktop 32": ([], 32), "desktop 64": ([], 64),
    "workstation 128": ([], 128), "server 512": ([], 512),
    "igpu 16": ([("igpu", 12)], 16), "igpu 32": ([("igpu", 24)], 32), "igpu 64": ([("igpu", 48)], 64),
    "mac 128": ([("igpu", 96)], 128), "mac 192": ([("igpu", 144)], 192),
    "4 + 16": ([("gpu", 3.5)], 16), "6 + 16": ([("gpu", 5.5)], 16), "8 + 16": ([("gpu", 7.5)], 16),
    "8 + 32": ([("gpu", 7.5)], 32), "8 + 64": ([("gpu", 7.5)], 64), "12 + 32": ([("gpu", 11.5)], 32),
    "12 + 64": ([("gpu", 11.5)], 64), "16 + 64": ([("gpu", 15.5)], 64), "16 + 128": ([("gpu", 15.5)], 128),
    "24 + 32": ([("gpu", 23.5)], 32), "24 + 64": ([("gpu", 23.5)], 64), "24 + 128": ([("gpu", 23.5)], 128),
    "24 + igpu + 64": ([("gpu", 23.5), ("igpu", 48)], 64),
    "2x12 + 64": ([("gpu", 11.5)] * 2, 64), "2x24 + 64": ([("gpu", 23.5)] * 2, 64),
    "24 + 8 + 64": ([("gpu", 23.5), ("gpu", 7.5)], 64), "8x80 + 512": ([("gpu", 79)] * 8, 512),
    "rpc 16 + 16": ([("rpc", 14)], 16), "rpc 2x48 + 24 + 64": ([("rpc", 46), ("rpc", 46), ("gpu", 23.5)], 64),
}  # fmt: skip


def placed(machine: str, model: str) -> tuple[Plan | None, Workload]:
    kinds, main = MACHINES[machine]
    devices = [Device(f"{kind}{at}", kind, int(free * GIB)) for at, (kind, free) in enumerate(kinds)]
    work = Workload(SHAPES[model].parts(), ContextSizes(n_ctx=8192))
    return Planner(work, devices, int(main * GIB), PlacementOptions()).best(), work


def short(plan: Plan | None, work: Workload) -> str:
    """`-`: refused. `cpu`: on the CPU. Else the blocks of each device, and the blocks whose experts are there."""
    if plan is None:
        return "-"
    if not plan.runs:
        return "cpu"
    if plan.holds_all(work) and len(plan.runs) == 1:
        return "all"
    texts: list[str] = []
    for run in plan.runs:
        blocks = min(run.end, work.n_blocks) - run.first
        experts = work.mixtures(run.experts, run.end)
        missing = work.mixtures(run.first, run.experts)
        texts.append(f"{blocks}" + (f"({experts})" if missing else ""))
    return "+".join(texts)


def table() -> str:
    rows = [["", *SHAPES]]
    rows += [[machine, *(short(*placed(machine, model)) for model in SHAPES)] for machine in MACHINES]
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def test_published_models_on_thirty_machines() -> None:
    assert len(MACHINES) == 30
    found = table()
    if os.environ.get("JAN_GOLDEN") == "write":
        TABLE.write_text(found, encoding="utf-8")
    assert found == TABLE.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", SHAPES)
def test_the_shapes_have_the_published_number_of_parameters(name: str) -> None:
    shape = SHAPES[name]
    parts = shape.parts()
    count = sum(
        layer.dense * 8 / shape.bits + layer.experts * 8 / shape.expert_bits for layer in parts.layers
    )
    count += (parts.input_bytes + parts.output_bytes) * 8 / 6.5
    assert count / 1e9 == pytest.approx(PARAMETERS[name], rel=0.03)


def test_a_gaming_machine_keeps_the_dense_parts_of_a_mixture_on_its_device() -> None:
    plan, work = placed("12 + 64", "Qwen3-30B-A3B")
    assert plan is not None
    (run,) = plan.runs
    assert (run.first, run.end) == (0, work.n_units)
    assert 0 < run.experts < work.n_blocks


def test_an_integrated_device_is_main_memory() -> None:
    """Sixteen gigabytes are not twenty-eight because the device names twelve of them again."""
    plan, _ = placed("igpu 16", "Mixtral-8x7B")
    assert plan is None
    discrete = Planner(
        Workload(SHAPES["Mixtral-8x7B"].parts(), ContextSizes(n_ctx=8192)),
        [Device("gpu0", "gpu", 20 * GIB)], 16 * GIB, PlacementOptions(),
    ).best()  # fmt: skip
    assert discrete is not None


def test_an_integrated_device_is_left_out_beside_a_discrete_one() -> None:
    assert placed("24 + igpu + 64", "Llama-3.3-70B")[0] == placed("24 + 64", "Llama-3.3-70B")[0]
