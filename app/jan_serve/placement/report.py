"""A plan for people: what each device holds, and what would make the model faster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from jan_serve.core.placement import DeviceShare
from jan_serve.placement.layer_planner import LayerPlanner, Plan
from jan_serve.placement.workload import Workload

MAIN_MEMORY: Final = "CPU"
_WORTH_SAYING: Final = 64 << 20


def device_shares(
    plan: Plan, planner: LayerPlanner, work: Workload, main_total: int
) -> tuple[DeviceShare, ...]:
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
    here = DeviceShare(
        device=MAIN_MEMORY,
        kind="cpu",
        memory=main_total,
        weights=weights,
        cache=work.cache(0, start),
        compute=work.compute(blocks=start > 0 or bool(left), output=not plan.runs),
        first=0 if min(start, work.n_blocks) else None,
        last=min(start, work.n_blocks) - 1 if min(start, work.n_blocks) else None,
        output=not plan.runs,
        experts_first=left[0] if left else None,
        experts_last=left[-1] if left else None,
    )
    return (here, *shares)


def lines(shares: Sequence[DeviceShare]) -> list[str]:
    """One line for each device."""
    mixture = any(part.experts_first is not None for part in shares)
    return [f"{_name(part)}: {_content(part, mixture)}" for part in shares]


def advice(shares: Sequence[DeviceShare], warning: str = "") -> list[str]:
    """What would make the model faster, as sentences, after the plan's warning.

    Without a warning empty if all of it is on accelerators or there is none.
    """
    found: list[str] = [warning] if warning else []
    if len(shares) < 2:
        return found
    main, devices = shares[0], shares[1:]
    n_left = 0 if main.first is None or main.last is None else main.last - main.first + 1
    experts_left = main.experts_first is not None
    if n_left:
        found.append(
            f"The CPU computes {_blocks(main.first, main.last)}: a smaller"
            " quantisation, a shorter context (n_ctx) or more memory on the devices puts more of them there."
        )
    elif experts_left:
        found.append(
            f"The experts of {_blocks(main.experts_first, main.experts_last)} are read from main memory: about"
            f" {gib(main.weights)} more on the devices, or a smaller quantisation, would hold all of them."
        )
    if n_left or experts_left:
        cache = sum(part.cache for part in devices)
        if cache > _WORTH_SAYING:
            found.append(
                f"The context takes {gib(cache)} of the devices: a shorter one (n_ctx) or a smaller type (type_k,"
                " type_v) leaves more to weights."
            )
    if any(part.kind == "rpc" for part in devices):
        found.append("Parts on other machines wait for the network in each step: fewer machines are faster.")
    return found


def gib(n_bytes: int) -> str:
    """A size as text: MiB below one GiB."""
    return f"{n_bytes / 2**30:.1f} GiB" if n_bytes >= 1 << 30 else f"{n_bytes / 2**20:.0f} MiB"


def _name(part: DeviceShare) -> str:
    return "main memory" if part.kind == "cpu" else part.device


def _blocks(first: int | None, last: int | None) -> str:
    return f"block {first}" if first == last else f"blocks {first} to {last}"


def _content(part: DeviceShare, mixture: bool) -> str:
    what: list[str] = []
    here = (part.experts_first, part.experts_last)
    if part.first is not None:
        bare = mixture and part.experts_first is None
        what.append(_blocks(part.first, part.last) + (" without experts" if bare else ""))
    if part.experts_first is not None and here != (part.first, part.last):
        what.append(f"the experts of {_blocks(*here)}")
    if part.output:
        what.append("the output layer")
    sizes = f"{gib(part.weights)} of weights"
    if part.cache:
        sizes += f", {gib(part.cache)} of context"
    sizes += f", {gib(part.compute)} to compute in"
    names = ", ".join(what) or "the token embeddings"
    return f"{names} ({sizes}: {gib(part.total)}{_limit(part)})"


def _limit(part: DeviceShare) -> str:
    """What the device has, at the end of its sizes."""
    if part.kind == "cpu":
        return ""
    return f" of {gib(part.memory)} free" + (", in main memory" if part.kind == "igpu" else "")
