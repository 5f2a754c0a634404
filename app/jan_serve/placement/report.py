"""A plan for people: what each device holds, and what would make the model faster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from jan_serve.core.placement import DeviceShare

_WORTH_SAYING: Final = 64 << 20


def lines(shares: Sequence[DeviceShare]) -> list[str]:
    mixture = any(part.experts_first is not None for part in shares)
    names = ("main memory" if part.kind == "cpu" else part.device for part in shares)
    return [f"{name}: {_content(part, mixture)}" for name, part in zip(names, shares, strict=True)]


def advice(shares: Sequence[DeviceShare], warning: str = "") -> list[str]:
    """What would make the model faster, as sentences, after the plan's warning. Empty if there is nothing."""
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
    sizes += f", {gib(part.compute)} to compute in: {gib(part.total)}"
    if part.kind != "cpu":
        sizes += f" of {gib(part.memory)} free" + (", in main memory" if part.kind == "igpu" else "")
    return f"{', '.join(what) or 'the token embeddings'} ({sizes})"
