"""A plan as text."""

from __future__ import annotations

from jan_serve.core.placement import DeviceShare, LayerParts, ModelParts
from jan_serve.placement.report import advice, lines

GIB = 1 << 30


def part(device: str, kind: str, **values: int | bool | None) -> DeviceShare:
    sizes = {"memory": 12 * GIB, "weights": 4 * GIB, "cache": GIB, "compute": 300 << 20}
    return DeviceShare(device=device, kind=kind, **(sizes | values))  # pyright: ignore[reportArgumentType]


MIXED = (
    part("CPU", "cpu", experts_first=0, experts_last=29, cache=0),
    part("CUDA0", "gpu", first=0, last=47, output=True, experts_first=30, experts_last=47),
)


def test_each_device_has_a_line() -> None:
    assert lines(MIXED) == [
        "main memory: the experts of blocks 0 to 29 (4.0 GiB of weights, 300 MiB to compute in: 4.3 GiB)",
        "CUDA0: blocks 0 to 47, the experts of blocks 30 to 47, the output layer"
        " (4.0 GiB of weights, 1.0 GiB of context, 300 MiB to compute in: 5.3 GiB of 12.0 GiB free)",
    ]


def test_memory_of_an_integrated_device_is_named_as_main_memory() -> None:
    shared = (part("CPU", "cpu", cache=0), part("Vulkan0", "igpu", first=0, last=7, output=True))
    assert lines(shared)[1].endswith("5.3 GiB of 12.0 GiB free, in main memory)")


def test_blocks_whose_experts_are_elsewhere() -> None:
    bare = (MIXED[0], part("CUDA0", "gpu", first=3, last=3))
    assert lines(bare)[1].startswith("CUDA0: block 3 without experts (")


def test_a_dense_model_has_no_experts_to_speak_of() -> None:
    dense = (part("CPU", "cpu", first=0, last=3), part("CUDA0", "gpu", first=4, last=7, output=True))
    assert lines(dense)[0].startswith("main memory: blocks 0 to 3 (")
    assert lines(dense)[1].startswith("CUDA0: blocks 4 to 7, the output layer (")
    assert advice(dense)[0].startswith("The CPU computes blocks 0 to 3: a smaller quantisation")


def test_main_memory_has_the_embeddings_at_least() -> None:
    whole = (part("CPU", "cpu", cache=0), part("CUDA0", "gpu", first=0, last=7, output=True))
    assert lines(whole)[0].startswith("main memory: the token embeddings (")
    assert advice(whole) == []


def test_advice_for_experts_in_main_memory() -> None:
    first, second = advice(MIXED)
    assert first.startswith("The experts of blocks 0 to 29 are read from main memory: about 4.0 GiB more")
    assert second.startswith("The context takes 1.0 GiB of the devices")


def test_the_network_is_named() -> None:
    assert "wait for the network" in advice((MIXED[0], part("RPC0", "rpc", first=0, last=1)))[-1]


def test_a_machine_without_accelerators_gets_no_advice() -> None:
    assert advice((part("CPU", "cpu", first=0, last=7, output=True),)) == []


def test_a_token_reads_the_experts_that_work_for_it() -> None:
    parts = ModelParts(
        layers=(LayerParts(100), LayerParts(10, experts=800)),
        input_bytes=70,
        output_bytes=70,
        tied_output=True,
        n_expert=8,
        n_expert_used=2,
        pinned=(("CUDA0", 5),),
    )
    assert parts.bytes_per_token == 100 + 10 + 200 + 70 + 5
