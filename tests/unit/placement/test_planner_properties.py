"""Over random machines and models: never over memory, never worse than layers alone, and more memory never hurts."""

from __future__ import annotations

import os
import random

import msgspec

from jan_serve.core.models.model_parts import LayerParts, ModelParts
from jan_serve.core.models.placement import PlacementOptions
from jan_serve.placement.machine import MAIN_MEMORY_SPEED, Device
from jan_serve.placement.planner import Plan, Planner, Run
from jan_serve.placement.workload import ContextSizes, Workload

DRAWS = int(os.environ.get("PLACEMENT_DRAWS", "400"))
MIB = 1 << 20


class Case(msgspec.Struct):
    """A machine, a model and settings."""

    work: Workload
    devices: list[Device]
    main: int
    options: PlacementOptions

    def plan(self) -> Plan | None:
        return Planner(self.work, self.devices, self.main, self.options).best()


def drawn(seed: int) -> Case:
    """Weights of a few megabytes to some gigabytes; devices with room for nothing, some or all."""
    draw = random.Random(seed)
    n_layer = draw.randint(1, 14)
    mixture = draw.random() < 0.6
    unit = draw.choice([1, 30, 300]) * MIB
    layers = tuple(
        LayerParts(
            dense=draw.randint(1, unit),
            experts=draw.randint(1, 12 * unit) if mixture and draw.random() < 0.85 else 0,
            k_elements=draw.choice([0, 128, 1024]),
            v_elements=draw.choice([0, 128, 1024]),
            state_elements=draw.choice([0, 0, 5000]),
        )
        for _ in range(n_layer)
    )
    tied = draw.random() < 0.3
    table = draw.randint(0, 2 * unit)
    parts = ModelParts(
        layers=layers,
        input_bytes=table,
        output_bytes=table if tied else draw.randint(1, 2 * unit),
        tied_output=tied,
        largest_tensor=max(max(layer.dense // 3, layer.experts // 3) for layer in layers),
        n_expert=64 if mixture else 0,
        n_expert_used=draw.randint(1, 64) if mixture else 0,
        n_embd=draw.choice([64, 1024]),
        n_vocab=draw.choice([500, 30_000]),
        n_head=8,
    )
    whole = parts.weights
    kinds = draw.choice(
        [["gpu"], ["gpu", "gpu"], ["igpu"], ["rpc", "rpc"], ["rpc", "gpu"], ["gpu", "igpu"], []]
    )
    devices = [
        Device(
            f"{kind}{at}", kind, int(whole * draw.choice([0, 0.1, 0.3, 0.6, 1.2]) + draw.randint(0, 80 * MIB))
        )
        for at, kind in enumerate(kinds)
    ]
    options = PlacementOptions(
        n_gpu_layers=draw.choice([None] * 6 + [-1, draw.randint(0, n_layer + 1)]),
        n_cpu_moe=draw.choice([None] * 6 + [draw.randint(0, n_layer)]),
        tensor_split=tuple(draw.choice([(), (), (), (1.0, 2.0), (1.0,)])),
        split_mode="none" if draw.random() < 0.2 else "layer",
    )
    context = ContextSizes(n_ctx=draw.choice([256, 8192]), n_ubatch=64, n_seqs=3)
    main = int(whole * draw.choice([0.2, 0.6, 1.5, 4]) + draw.randint(0, 100 * MIB))
    return Case(Workload(parts, context), devices, main, options)


def taken(case: Case, run: Run) -> int:
    """Bytes on the device of a run, counted from the parts."""
    parts, work = case.work.parts, case.work
    blocks = parts.layers[run.first : min(run.end, len(parts.layers))]
    total = sum(layer.dense for layer in blocks)
    total += sum(layer.experts for layer in parts.layers[run.experts : min(run.end, len(parts.layers))])
    total += work.cache(run.first, run.end)
    if run.end == len(parts.layers) + 1:
        total += parts.output_bytes
    return total + work.compute(blocks=bool(blocks), output=run.end > len(parts.layers))


def in_main_memory(case: Case, plan: Plan) -> int:
    """Bytes of weights and cache that are on no discrete device."""
    away = sum(
        taken(case, run)
        - case.work.compute(blocks=run.first < case.work.n_blocks, output=run.end == case.work.n_units)
        for run in plan.runs
        if not run.device.shares_main_memory
    )
    whole = case.work.parts.weights + case.work.cache(0, case.work.n_units)
    copied = case.work.parts.output_bytes if case.work.parts.tied_output and plan.runs else 0
    return whole + copied - away


def test_a_plan_is_never_over_memory() -> None:
    planned = 0
    for seed in range(DRAWS):
        case = drawn(seed)
        plan = case.plan()
        if plan is None:
            continue
        planned += bool(plan.runs)
        assert plan.main <= case.main, seed
        assert in_main_memory(case, plan) <= plan.main, seed
        for run in plan.runs:
            assert taken(case, run) <= run.device.usable, seed
            assert run.first < run.end, seed
            assert run.first <= run.experts <= run.end, seed
        ends = [run.end for run in plan.runs]
        assert [run.first for run in plan.runs[1:]] == ends[:-1], seed
        assert not ends or ends[-1] == case.work.n_units, seed
    assert planned > DRAWS // 4


def layers_alone(case: Case) -> list[float]:
    """Costs of the plans of llama.cpp's own kind that fit one device: the last layers with all their parts."""
    costs: list[float] = []
    work = case.work
    for device in Planner(work, case.devices, case.main, case.options).devices:
        for first in range(work.n_units):
            run = Run(device, first, work.n_units, first)
            staging = work.parts.largest_tensor if device.kind == "gpu" and first else 0
            if taken(case, run) + staging > device.usable:
                continue
            plan = Plan((run,), 0.0, 0)
            main = in_main_memory(case, plan) + work.compute(blocks=True, output=False)
            if device.shares_main_memory:
                main += work.compute(blocks=first < work.n_blocks, output=True)
            if main > case.main:
                continue
            read = work.read(first, work.n_units) + work.read_experts(first, work.n_units)
            rest = work.read(0, first) + work.read_experts(0, first)
            costs.append(rest / MAIN_MEMORY_SPEED + read / device.speed + device.hop_s)
    return costs


def test_a_plan_is_never_slower_than_layers_alone() -> None:
    compared = 0
    for seed in range(DRAWS):
        case = drawn(seed)
        case.options = PlacementOptions()
        plan, alone = case.plan(), layers_alone(case)
        if alone:
            compared += 1
            assert plan is not None, seed
            assert plan.cost_s <= min(alone) * (1 + 1e-9), seed
    assert compared > DRAWS // 4


def test_more_memory_never_makes_a_plan_slower() -> None:
    better = 0
    for seed in range(DRAWS):
        case = drawn(seed)
        draw = random.Random(-seed)
        case.options = msgspec.structs.replace(case.options, tensor_split=())
        before = case.plan()
        if before is None:
            continue
        if case.devices and draw.random() < 0.7:
            at = draw.randrange(len(case.devices))
            device = case.devices[at]
            case.devices[at] = msgspec.structs.replace(device, free=device.free + draw.randint(1, 900 * MIB))
        else:
            case.main += draw.randint(1, 900 * MIB)
        after = case.plan()
        assert after is not None, seed
        assert after.cost_s <= before.cost_s * (1 + 1e-9), seed
        better += after.cost_s < before.cost_s
    assert better > DRAWS // 20
