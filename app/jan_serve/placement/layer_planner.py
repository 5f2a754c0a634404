"""The LayerPlanner chooses where each part of a model goes, among devices whose speed it assumes. Pure.

llama.cpp computes a block where its attention and cache are, takes blocks for the devices from the last to the
first, and gives each device a run of them in turn. Experts of single blocks can be left in main memory. Among the
plans of that form whose parts fit, the planner takes the one whose tokens take the least time by the cost model:
reads of weights at the speed of their memory, and hops between devices. Plans with layers alone are among them, and
more memory only adds plans, so that it never costs time.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import msgspec

from jan_serve.core.placement import PlacementOptions
from jan_serve.placement.workload import Workload

_GB: Final = 1e9
# Bytes a second of weights that one stream reads. Rough figures of common hardware: only their order decides.
MAIN_MEMORY_SPEED: Final = 40 * _GB
_SPEED: Final = {"gpu": 400 * _GB, "igpu": 60 * _GB, "rpc": 50 * _GB}
# Seconds for one more device in a step, and for going to main memory and back within a block.
_HOP_S: Final = {"gpu": 30e-6, "igpu": 20e-6, "rpc": 400e-6}
_MAX_SPARE: Final = 512 << 20
_SPARE_SHARE: Final = 16


class Device(msgspec.Struct, frozen=True):
    """An accelerator that llama.cpp can use. kind: gpu, igpu (its memory is main memory) or rpc. free: bytes."""

    name: str
    kind: str
    free: int

    @property
    def usable(self) -> int:
        """Free bytes, less what is left to the driver and other programs: a sixteenth, at most 512 MiB."""
        return max(0, self.free - min(_MAX_SPARE, self.free // _SPARE_SHARE))

    @property
    def shares_main_memory(self) -> bool:
        return self.kind == "igpu"

    @property
    def speed(self) -> float:
        """Bytes that it reads in a second."""
        return _SPEED[self.kind]

    @property
    def hop_s(self) -> float:
        return _HOP_S[self.kind]


def usable_devices(devices: Sequence[Device]) -> tuple[Device, ...]:
    """Discrete devices exclude integrated ones, as in llama.cpp, which share the memory that the rest needs."""
    discrete = any(device.kind == "gpu" for device in devices)
    return tuple(
        device for device in devices if device.kind in _SPEED and not (discrete and device.kind == "igpu")
    )


def in_order(devices: Sequence[Device]) -> tuple[Device, ...]:
    """The usable ones, slowest kind first: the last device has the output layer."""
    order = ("rpc", "igpu", "gpu")
    return tuple(sorted(usable_devices(devices), key=lambda device: order.index(device.kind)))


_MOST_WAYS: Final = 48
"""Ways to cover the units below a boundary that are followed where main memory is short."""


class Run(msgspec.Struct, frozen=True):
    """Units first … end-1 of a device; the last unit of all is the output layer. experts: from this unit on."""

    device: Device
    first: int
    end: int
    experts: int


class Plan(msgspec.Struct, frozen=True):
    """runs: in llama.cpp's order of devices, without empty ones. cost_s: of a token, by the cost model. main: bytes
    in main memory, with the parts on integrated devices. pipelined: there is room for the inputs of several parts of
    a batch at once."""

    runs: tuple[Run, ...]
    cost_s: float
    main: int
    pipelined: bool = False

    def n_gpu_layers(self, work: Workload) -> int:
        return work.n_units - self.runs[0].first if self.runs else 0

    def holds_all(self, work: Workload) -> bool:
        """Whether all blocks, with their experts, are on devices."""
        starts = bool(self.runs) and self.runs[0].first == 0
        return starts and all(run.experts <= run.first for run in self.runs)


class _Partial(msgspec.Struct, frozen=True):
    """Devices up to some one cover all units below some boundary."""

    cost: float
    main: int
    runs: tuple[Run, ...]


class LayerPlanner:
    """Plans for one model, context and machine."""

    def __init__(
        self, work: Workload, devices: Sequence[Device], main_total: int, options: PlacementOptions
    ) -> None:
        """main_total: bytes of main memory that the model may take, with what it puts on integrated devices."""
        self._work = work
        self._options = options
        self._main_total = main_total
        # The user's indices and proportions are of the devices as they are listed.
        listed = any(options.tensor_split) or options.split_mode != "layer"
        chosen = usable_devices(devices) if listed else in_order(devices)
        self.row_devices = tuple(device.name for device in chosen)
        if options.split_mode == "none":
            chosen = chosen[options.main_gpu : options.main_gpu + 1]
        elif options.split_mode == "row" and chosen:
            last = chosen[min(options.main_gpu, len(chosen) - 1)]
            chosen = (msgspec.structs.replace(last, free=sum(device.usable for device in chosen)),)
        self.devices = chosen
        pinned = dict(work.parts.pinned)
        self._pinned = [pinned.get(device.name, 0) for device in self.devices]
        away = sum(pinned.get(device.name, 0) for device in self.devices if not device.shares_main_memory)
        self._main_pinned = sum(pinned.values()) - away
        # With a large batch, llama.cpp copies weights from main memory to a GPU to multiply them there.
        self._staging = work.parts.largest_tensor
        self._feasible: dict[tuple[int, int, int, bool], Run | None] = {}

    def best(self) -> Plan | None:
        """The fastest plan that fits; None if none does."""
        layers = self._layers()
        if not self.devices or layers == 0:
            return self._if_fits(self._in_main_memory())
        if any(self._options.tensor_split):
            return self._by_split(layers)
        # The plans without anything left behind need no room for copies of it.
        kinds = (True, False) if layers in (None, self._work.n_units) else (False,)
        plans = [plan for whole in kinds if (plan := self._fastest(layers, whole=whole)) is not None]
        return min(plans, key=lambda plan: plan.cost_s, default=None)

    def forced(self) -> Plan:
        """What the settings demand although it may not fit: layers in proportion to the devices' memory."""
        layers = self._layers()
        if not self.devices or not layers:
            return self._in_main_memory()
        shares = [float(device.usable or 1) for device in self.devices]
        bounds = self._bounds(layers, self._proportions(shares))
        return self._of_bounds(bounds, fits=False) or self._in_main_memory()

    def _layers(self) -> int | None:
        """The demanded number of units on devices; None: automatic."""
        asked = self._options.n_gpu_layers
        if asked is None:
            return None
        return self._work.n_units if asked < 0 else min(asked, self._work.n_units)

    def _in_main_memory(self) -> Plan:
        units = self._work.n_units
        main = self._main_fixed() + self._main_units(0, units) + self._work.compute(blocks=True, output=True)
        if self._work.parts.tied_output:
            main -= self._work.parts.output_bytes
        return Plan((), self._main_cost(0, units), main)

    def _main_fixed(self) -> int:
        return self._work.parts.input_bytes + self._main_pinned

    def _main_units(self, first: int, end: int) -> int:
        work = self._work
        return work.dense(first, end) + work.experts(first, end) + work.cache(first, end)

    def _main_cost(self, first: int, end: int) -> float:
        return (self._work.read(first, end) + self._work.read_experts(first, end)) / MAIN_MEMORY_SPEED

    def _run(self, index: int, first: int, end: int, *, whole: bool, fits: bool = True) -> Run | None:
        """Units on a device; None if they do not fit. whole: nothing of the model is left in main memory."""
        work, device = self._work, self.devices[index]
        output = end == work.n_units
        blocks = first < work.n_blocks
        room = device.usable - self._pinned[index] - work.dense(first, end) - work.cache(first, end)
        copies = self.pipelined(whole=whole) and (first, end) != (0, work.n_units)
        room -= work.compute(blocks=blocks, output=output, copies=copies)
        if not whole and device.kind == "gpu":
            room -= self._staging
        if room < 0 and fits:
            return None
        if self._options.n_cpu_moe is not None:
            experts = min(max(first, self._options.n_cpu_moe), end)
            has_room = not fits or work.experts(experts, end) <= room
            return Run(device, first, end, experts) if has_room else None
        experts = work.first_experts(first, end, max(room, 0))
        if whole and experts > first and work.experts(first, end):
            return None
        return Run(device, first, end, experts)

    def pipelined(self, *, whole: bool) -> bool:
        """Whether several devices compute parts of a batch at once: only of models that are on devices as a whole."""
        return len(self.devices) > 1 and whole

    def _run_cost(self, run: Run) -> float:
        work, device = self._work, run.device
        on_device = work.read(run.first, run.end) + work.read_experts(run.experts, run.end)
        elsewhere = work.read_experts(run.first, run.experts) / MAIN_MEMORY_SPEED
        hops = 1 + work.mixtures(run.first, run.experts)
        return on_device / device.speed + elsewhere + hops * device.hop_s

    def _run_main(self, run: Run) -> int:
        """Bytes of main memory that a run takes."""
        work = self._work
        main = work.experts(run.first, run.experts)
        if run.device.shares_main_memory:
            main += work.dense(run.first, run.end) + work.cache(run.first, run.end)
            main += work.experts(run.experts, run.end)
            main += work.compute(blocks=run.first < work.n_blocks, output=run.end == work.n_units)
        return main

    def _cached_run(self, index: int, first: int, end: int, whole: bool) -> Run | None:
        key = (index, first, end, whole)
        if key not in self._feasible:
            self._feasible[key] = self._run(index, first, end, whole=whole)
        return self._feasible[key]

    def _fastest(self, layers: int | None, *, whole: bool) -> Plan | None:
        """The fastest plan, by dynamic programming over devices and boundaries between them. The unconstrained best
        is the answer if it fits main memory; else all plans that none beats in both time and main memory are
        followed."""
        start = self._work.n_units - layers if layers is not None else (0 if whole else None)
        for single in (True, False):
            found = self._followed(start, whole=whole, single=single)
            fitting = [plan for plan in found if plan.main <= self._main_total]
            if fitting:
                best = min(fitting, key=lambda plan: plan.cost)
                return Plan(best.runs, best.cost, best.main, pipelined=self.pipelined(whole=whole))
        return None

    def _followed(self, start: int | None, *, whole: bool, single: bool) -> list[_Partial]:
        """start: the first unit on devices; None: any. single: keeps only the fastest way to each boundary."""
        units = self._work.n_units
        fixed = self._main_fixed() + (0 if whole else self._work.compute(blocks=True, output=False))
        ways: list[list[_Partial]] = [
            [_Partial(self._main_cost(0, end), fixed + self._main_units(0, end), ())]
            if start is None or end == start
            else []
            for end in range(units)
        ]
        ways.append([])  # something is on a device
        for index in range(len(self.devices)):
            reached = [list(way) for way in ways]
            for end in range(1, units + 1):
                for first in range(end - 1, -1, -1):
                    if not ways[first]:
                        continue
                    run = self._cached_run(index, first, end, whole)
                    if run is None and whole and end == units:
                        continue  # the run of everything needs no copies of inputs
                    if run is None:
                        break  # a longer run fits less
                    cost, main = self._run_cost(run), self._run_main(run)
                    reached[end] += [
                        _Partial(way.cost + cost, way.main + main, (*way.runs, run)) for way in ways[first]
                    ]
                reached[end] = _kept(reached[end], single=single)
            ways = reached
        plain = [] if start is not None or whole else [self._in_main_memory()]
        return [*ways[units], *(_Partial(plan.cost_s, plan.main, ()) for plan in plain)]

    def _proportions(self, shares: Sequence[float]) -> list[float]:
        """Cumulative shares, up to 1."""
        total = sum(shares) or 1.0
        reached, found = 0.0, list[float]()
        for share in shares:
            reached += share
            found.append(reached / total)
        return found

    def _bounds(self, layers: int | None, shares: Sequence[float]) -> list[int]:
        """The first unit of each device and the end, as llama.cpp splits `layers` units (load_tensors)."""
        units = self._work.n_units
        count = units if layers is None else layers
        start = units - count
        bounds = [start]
        for share in shares:
            end = bounds[-1]
            while end < units and (end - start) / count < share:
                end += 1
            bounds.append(end)
        bounds[-1] = units
        return bounds

    def _of_bounds(self, bounds: Sequence[int], *, fits: bool = True, whole: bool = False) -> Plan | None:
        runs: list[Run] = []
        for index, (first, end) in enumerate(pairwise(bounds)):
            if first == end:
                continue
            run = self._run(index, first, end, whole=whole, fits=fits)
            if run is None:
                return None
            runs.append(run)
        main = self._main_fixed() + self._work.compute(blocks=True, output=False)
        main += self._main_units(0, bounds[0]) + sum(self._run_main(run) for run in runs)
        cost = self._main_cost(0, bounds[0]) + sum(self._run_cost(run) for run in runs)
        plan = Plan(tuple(runs), cost, main, pipelined=self.pipelined(whole=whole))
        return self._if_fits(plan) if fits else plan

    def _by_split(self, layers: int | None) -> Plan | None:
        """The user's proportions, of as many layers as fit."""
        split = [*self._options.tensor_split, *([0.0] * len(self.devices))][: len(self.devices)]
        shares = self._proportions(split if any(split) else [1.0] * len(self.devices))
        counts = [layers] if layers is not None else range(self._work.n_units, 0, -1)
        plans = [
            self._of_bounds(bounds, whole=whole)
            for bounds in (self._bounds(count, shares) for count in counts)
            for whole in ((True, False) if bounds[0] == 0 else (False,))
        ]
        best = min((plan for plan in plans if plan is not None), key=lambda plan: plan.cost_s, default=None)
        return self._if_fits(self._in_main_memory()) if best is None and layers is None else best

    def _if_fits(self, plan: Plan) -> Plan | None:
        return plan if plan.main <= self._main_total else None


def _kept(ways: list[_Partial], *, single: bool) -> list[_Partial]:
    if len(ways) < 2:
        return ways
    ways = sorted(ways, key=lambda way: (way.cost, way.main))
    kept = ways[:1]
    if not single:
        for way in ways[1:]:
            if way.main < kept[-1].main:
                kept.append(way)
        if len(kept) > _MOST_WAYS:  # always with the fastest one and the one that leaves the least
            kept = [kept[number * (len(kept) - 1) // (_MOST_WAYS - 1)] for number in range(_MOST_WAYS)]
    return kept
