"""Plans where a model goes: the context length and the parts on each device, from the settings and the free memory."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from jan_serve.core.models import DeviceInfo
from jan_serve.core.placement import (
    BYTES_PER_ELEMENT,
    MIN_DEFAULT_N_CTX,
    WANTED_N_CTX,
    DeviceShare,
    LlamaPlacement,
    PlacementOptions,
    default_n_ctx,
)
from jan_serve.errors import InsufficientMemory, SettingsError
from jan_serve.ipc.messages import EngineSettings
from jan_serve.placement.layer_planner import Device, LayerPlanner, Plan
from jan_serve.placement.report import gib
from jan_serve.placement.workload import ContextSizes, Workload, states_of_sequence

logger = logging.getLogger(__name__)

MAIN_MEMORY: Final = "CPU"
ALL_LAYERS: Final = 1 << 20
_NOTHING: Final = "^$"
"""Matches no tensor. Beside an override llama.cpp keeps no copies of inputs, for which there may be no room."""
_RECURRENT_SEQUENCES: Final = 12
"""Running and kept sequences of a model with recurrent states, unless set."""


class DevicePlan(msgspec.Struct, frozen=True):
    """n_ctx: None if main memory decides the length. local: the fastest device of this machine that is used. warning:
    what the settings ask for and do not get, as a sentence; "" if there is nothing."""

    llama: LlamaPlacement
    n_ctx: int | None
    shares: tuple[DeviceShare, ...]
    local: str | None = None
    warning: str = ""

    @property
    def n_gpu_layers(self) -> int:
        """Layers as llama.cpp counts them: the output layer, then blocks from the last to the first."""
        return self.llama.n_gpu_layers

    @property
    def is_on_one_device(self) -> bool:
        """Whether one device computes all blocks and the output layer."""
        here = next((share for share in self.shares if share.device == MAIN_MEMORY), None)
        return (
            len(self.llama.devices) == 1
            and here is not None
            and here.first is None
            and here.experts_first is None
            and not here.output
            and all(device != MAIN_MEMORY for _, device in self.llama.overrides)
        )


def plan_devices(
    settings: EngineSettings,
    devices: Sequence[DeviceInfo],
    main_total: int,
    beside: int = 0,
    missing: Mapping[str, str] = MappingProxyType({}),
) -> DevicePlan:
    """The fastest plan that fits; the user's own layers even if they may not.

    devices: accelerators. main_total: bytes of main memory, with those of integrated devices. beside: for the projector
    and the draft model, on the last local device, or in main memory without one.
    missing: why devices of other machines are not among them, by address.
    Raises InsufficientMemory with the figures, SettingsError.
    """
    options = settings.placement
    chosen = _accelerators(settings, devices, beside)
    if not any(device.kind == "gpu" for device in chosen):
        main_total = max(0, main_total - beside)
    if options.require_accelerator and not chosen:
        names = ", ".join(device.name for device in devices) or "none"
        raise SettingsError(
            "require_accelerator: llama.cpp finds no accelerator that may be used"
            f" (device: {settings.device or 'any'}; found: {names})" + _absent(missing)
        )
    warning = _unmet(settings, chosen, missing)
    if not settings.parts.layers:
        return msgspec.structs.replace(_of_unread(settings, chosen), warning=warning)
    found: DevicePlan | None = None
    for length in _lengths(settings, with_devices=bool(chosen)):
        work = Workload(settings.parts, _context(settings, length))
        planner = LayerPlanner(work, chosen, main_total, options)
        plan = planner.best()
        if plan is None:
            continue
        found = _result(settings, plan, planner, work, main_total, length)
        if plan.holds_all(work) or length <= WANTED_N_CTX:
            break
    if found is None:
        found = _demanded(settings, chosen, main_total, missing)
    if options.require_accelerator and not found.n_gpu_layers:
        raise InsufficientMemory(
            "require_accelerator: no layer of the model fits the accelerators: "
            + ", ".join(f"{device.name} has {gib(device.free)} free" for device in chosen),
            retry_after=None,
        )
    return msgspec.structs.replace(found, warning=warning)


def _unmet(settings: EngineSettings, chosen: Sequence[Device], missing: Mapping[str, str]) -> str:
    """Layers that should be on accelerators where there are none."""
    asked = settings.placement.n_gpu_layers
    if chosen or not asked or (settings.device or "").lower() == "cpu":
        return ""
    return (
        f"n_gpu_layers = {'all' if asked < 0 else asked}, and llama.cpp finds no accelerator{_absent(missing)}:"
        " the CPU computes everything (require_accelerator refuses this)."
    )


def _absent(missing: Mapping[str, str]) -> str:
    """The end of a sentence: which devices are not there, and why."""
    return "".join(f"; {address}: {reason}" for address, reason in missing.items())


def _result(
    settings: EngineSettings, plan: Plan, planner: LayerPlanner, work: Workload, main_total: int, length: int
) -> DevicePlan:
    local = [run.device.name for run in plan.runs if run.device.kind != "rpc"]
    return DevicePlan(
        llama=llama_placement(plan, planner, work, settings.placement),
        n_ctx=length if plan.runs else settings.n_ctx,
        shares=device_shares(plan, work, main_total),
        local=local[-1] if local else None,
    )


def _demanded(
    settings: EngineSettings, devices: Sequence[Device], main_total: int, missing: Mapping[str, str]
) -> DevicePlan:
    """Without a plan that fits: what the settings demand. Raises InsufficientMemory if they demand nothing."""
    length = settings.n_ctx or min(settings.n_ctx_train or MIN_DEFAULT_N_CTX, MIN_DEFAULT_N_CTX)
    work = Workload(settings.parts, _context(settings, length))
    options = settings.placement
    planner = LayerPlanner(work, devices, main_total, options)
    if devices and options.n_gpu_layers:
        plan = planner.forced()
        logger.warning(
            "the %d layers that the settings put on devices may not fit them", plan.n_gpu_layers(work)
        )
        return _result(settings, plan, planner, work, main_total, length)
    cache, compute = work.cache(0, work.n_units), work.compute(blocks=True, output=True)
    needed = settings.parts.weights + cache + compute
    there = [f"{gib(main_total)} of main memory"] + [
        f"{gib(device.free)}{' of it' if device.shares_main_memory else ''} on {device.name}"
        for device in devices
    ]
    raise InsufficientMemory(
        f"the model needs {gib(needed)} ({gib(settings.parts.weights)} for its weights, {gib(cache)} for a context of"
        f" {length} tokens, {gib(compute)} to compute in), and there are {', '.join(there)}{_absent(missing)}",
        retry_after=None,
        needed_bytes=needed,
        available_bytes=main_total
        + sum(device.usable for device in devices if not device.shares_main_memory),
    )


def device_shares(plan: Plan, work: Workload, main_total: int) -> tuple[DeviceShare, ...]:
    """Main memory first, then the devices in llama.cpp's order."""
    parts = work.parts
    pinned = dict(parts.pinned)
    on_devices = 0
    shares: list[DeviceShare] = []
    start = plan.runs[0].first if plan.runs else work.n_units
    for run in plan.runs:
        blocks = range(run.first, min(run.end, work.n_blocks))
        experts = [layer for layer in range(run.experts, len(parts.layers)) if layer < run.end]
        experts = [layer for layer in experts if parts.layers[layer].experts]
        own = pinned.get(run.device.name, 0)
        on_devices += own
        shares.append(
            DeviceShare(
                device=run.device.name,
                kind=run.device.kind,
                memory=run.device.free,
                weights=work.dense(run.first, run.end) + work.experts(run.experts, run.end) + own,
                cache=work.cache(run.first, run.end),
                compute=work.compute(
                    blocks=bool(blocks),
                    output=run.end == work.n_units,
                    copies=plan.pipelined and len(plan.runs) > 1 and start == 0,
                ),
                first=blocks[0] if blocks else None,
                last=blocks[-1] if blocks else None,
                output=run.end == work.n_units,
                experts_first=experts[0] if experts else None,
                experts_last=experts[-1] if experts else None,
            )
        )
    left = [
        layer
        for layer in range(work.n_blocks)
        if parts.layers[layer].experts
        and (layer < start or any(run.first <= layer < run.experts for run in plan.runs))
    ]
    weights = parts.input_bytes + sum(pinned.values()) - on_devices + work.dense(0, start)
    weights += work.experts(0, start) + sum(work.experts(run.first, run.experts) for run in plan.runs)
    if parts.tied_output and not plan.runs:
        weights -= parts.output_bytes
    n_here = min(start, work.n_blocks)
    here = DeviceShare(
        device=MAIN_MEMORY,
        kind="cpu",
        memory=main_total,
        weights=weights,
        cache=work.cache(0, start),
        compute=work.compute(blocks=start > 0 or bool(left), output=not plan.runs),
        first=0 if n_here else None,
        last=n_here - 1 if n_here else None,
        output=not plan.runs,
        experts_first=left[0] if left else None,
        experts_last=left[-1] if left else None,
    )
    return (here, *shares)


def llama_placement(
    plan: Plan, planner: LayerPlanner, work: Workload, options: PlacementOptions
) -> LlamaPlacement:
    """The plan in llama.cpp's terms: the user's overrides come first, for the first that matches counts."""
    overrides = list(options.override_tensor)
    left = [
        layer
        for run in plan.runs
        for layer in range(run.first, min(run.experts, work.n_blocks))
        if work.parts.layers[layer].experts
    ]
    if left:
        numbers = "|".join(map(str, left))
        overrides.append((rf"^blk\.({numbers})\.ffn_(up|down|gate|gate_up)_(ch)?exps", MAIN_MEMORY))
    if not overrides and len(plan.runs) > 1 and not plan.pipelined:
        overrides.append((_NOTHING, MAIN_MEMORY))
    names = tuple(run.device.name for run in plan.runs)
    split = tuple(float(run.end - run.first) for run in plan.runs)
    if options.split_mode == "row" and plan.runs:
        names, split = planner.row_devices, options.tensor_split
    return LlamaPlacement(
        n_gpu_layers=plan.n_gpu_layers(work),
        devices=names,
        tensor_split=split,
        split_mode="row" if options.split_mode == "row" else "layer",
        main_gpu=options.main_gpu,
        overrides=tuple(overrides),
    )


def kv_bytes_per_token(settings: EngineSettings) -> int:
    """Size of one KV cell over all blocks; 0 if the header was not read."""
    k_bytes = settings.k_elements * BYTES_PER_ELEMENT.get(settings.type_k, 2.0)
    return int(k_bytes + settings.v_elements * BYTES_PER_ELEMENT.get(settings.type_v, 2.0))


def _accelerators(settings: EngineSettings, devices: Sequence[DeviceInfo], beside: int) -> list[Device]:
    """Those that may be used."""
    named = settings.device
    chosen = [
        Device(device.name, device.kind, device.free_bytes)
        for device in devices
        if named is None or device.name.lower() == named.lower()
    ]
    if named is not None and not chosen and named.lower() != "cpu":
        known = ", ".join(["CPU", *(device.name for device in devices)])
        raise SettingsError(f"device: ggml has no device {named!r}; it has {known}")
    local = [at for at, device in enumerate(chosen) if device.kind != "rpc"]
    if local:
        last = chosen[local[-1]]
        chosen[local[-1]] = msgspec.structs.replace(last, free=max(0, last.free - beside))
    return chosen


def _of_unread(settings: EngineSettings, devices: Sequence[Device]) -> DevicePlan:
    """Without the sizes of the header only the user's layers count."""
    asked = settings.placement.n_gpu_layers or 0
    layers = ALL_LAYERS if asked < 0 else asked
    names = tuple(device.name for device in devices) if layers else ()
    return DevicePlan(LlamaPlacement(n_gpu_layers=layers, devices=names), settings.n_ctx, ())


def _context(settings: EngineSettings, length: int) -> ContextSizes:
    return ContextSizes(
        n_ctx=length,
        type_k=settings.type_k,
        type_v=settings.type_v,
        n_ubatch=min(settings.n_ubatch, length),
        n_seqs=settings.parallel + settings.cache_sequences if settings.parallel else _RECURRENT_SEQUENCES,
        n_states=states_of_sequence(settings),
        flash_attn=settings.flash_attn != "off",
    )


def _lengths(settings: EngineSettings, *, with_devices: bool) -> list[int]:
    """Longest first, each half of the one before: shorter ones, to WANTED_N_CTX, before fewer layers on devices."""
    if settings.n_ctx is not None:
        return [settings.n_ctx]
    kv = kv_bytes_per_token(settings)
    if not with_devices:
        return [min(settings.n_ctx_train or MIN_DEFAULT_N_CTX, MIN_DEFAULT_N_CTX)]
    lengths = [default_n_ctx(settings.n_ctx_train, kv, sys.maxsize, settings.context_bytes)]
    while lengths[-1] > MIN_DEFAULT_N_CTX:
        lengths.append(max(MIN_DEFAULT_N_CTX, lengths[-1] // 2))
    return lengths
