"""Layers, experts and context for the devices of a machine, and what a plan says to llama.cpp."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from jan_serve.core.models import DeviceInfo
from jan_serve.core.placement import MIN_DEFAULT_N_CTX, LayerParts, ModelParts, PlacementOptions
from jan_serve.errors import InsufficientMemory, SettingsError
from jan_serve.ipc.messages import EngineSettings
from jan_serve.placement.device_plan import DevicePlan, plan_devices
from jan_serve.placement.workload import ContextSizes, Workload

MIB = 1 << 20
DENSE = ModelParts(
    layers=(LayerParts(dense=1000 * MIB, k_elements=512, v_elements=512),) * 4,
    input_bytes=10 * MIB,
    output_bytes=10 * MIB,
    largest_tensor=100 * MIB,
    n_embd=64,
    n_vocab=1000,
)
MIXTURE = ModelParts(
    layers=(LayerParts(dense=100 * MIB, experts=900 * MIB, k_elements=512, v_elements=512),) * 4,
    input_bytes=10 * MIB,
    output_bytes=10 * MIB,
    largest_tensor=300 * MIB,
    n_expert=8,
    n_expert_used=2,
    n_embd=64,
    n_vocab=1000,
)
PLENTY = 64_000 * MIB


def gpu(free: int, name: str = "GPU0", kind: str = "gpu") -> DeviceInfo:
    return DeviceInfo(name=name, description="a device", kind=kind, free_bytes=free, total_bytes=free)


def plan(
    parts: ModelParts,
    devices: list[DeviceInfo],
    main: int = PLENTY,
    n_ctx_train: int = 131_072,
    beside: int = 0,
    **values: Any,
) -> DevicePlan:
    names = set(PlacementOptions.__struct_fields__)
    options = PlacementOptions(**{name: value for name, value in values.items() if name in names})
    others = {name: value for name, value in values.items() if name not in names}
    settings = EngineSettings(
        parts=parts,
        placement=options,
        n_ctx_train=n_ctx_train,
        k_elements=sum(layer.k_elements for layer in parts.layers),
        v_elements=sum(layer.v_elements for layer in parts.layers),
        **others,
    )
    return plan_devices(settings, devices, main, beside)


def needed(length: int, blocks: int = 4) -> int:
    """Free memory of a device for the output layer and so many dense blocks with a context of `length`."""
    work = Workload(DENSE, ContextSizes(n_ctx=length))
    first = 4 - blocks
    size = work.dense(first, 5) + work.cache(first, 5) + work.compute(blocks=blocks > 0, output=True)
    size += DENSE.largest_tensor if first else 0
    return size + min(512 * MIB, size // 15) + 1


@pytest.mark.parametrize(
    ("free", "n_ctx", "n_ctx_train", "layers", "expected"),
    [
        (needed(32_768), None, 131_072, None, (5, 32_768)),
        (needed(32_768) - 2 * MIB, None, 131_072, None, (5, 16_384)),
        (needed(8_192), None, 131_072, None, (5, 8_192)),
        # Below that, fewer layers are preferred to a shorter context.
        (needed(8_192) - 2 * MIB, None, 131_072, None, (4, 8_192)),
        (needed(8_192, 2), None, 131_072, None, (3, 8_192)),
        (0, None, 131_072, None, (0, None)),
        (0, 4_096, 131_072, None, (0, 4_096)),
        (needed(4_096), None, 4_096, None, (5, 4_096)),
        (needed(40_000), 40_000, 131_072, None, (5, 40_000)),
        (needed(8_192, 2), None, 131_072, 3, (3, 8_192)),
        (needed(16_384, 2), 1_000, 131_072, 2, (2, 1_000)),
        (needed(32_768), None, 131_072, -1, (5, 32_768)),
        # As requested, with the smallest cache: llama.cpp reports whether it fits.
        (0, None, 131_072, -1, (5, MIN_DEFAULT_N_CTX)),
        (needed(32_768), None, 0, None, (5, MIN_DEFAULT_N_CTX)),
    ],
)
def test_layers_and_context_are_fitted_together(
    free: int, n_ctx: int | None, n_ctx_train: int, layers: int | None, expected: tuple[int, int | None]
) -> None:
    found = plan(DENSE, [gpu(free)], n_ctx=n_ctx, n_ctx_train=n_ctx_train, n_gpu_layers=layers)
    assert (found.n_gpu_layers, found.n_ctx) == expected


def test_a_default_context_on_a_device_keeps_to_its_limit() -> None:
    token_bytes = 4 * 1024 * 2
    found = plan(DENSE, [gpu(PLENTY)], context_bytes=10_000 * token_bytes)
    assert (found.n_gpu_layers, found.n_ctx) == (5, 8_192)


def test_experts_are_left_in_main_memory_by_an_override() -> None:
    found = plan(MIXTURE, [gpu(2_000 * MIB)], n_ctx=512)
    assert found.n_gpu_layers == 5
    ((pattern, device),) = found.llama.overrides
    assert device == "CPU"
    assert pattern == r"^blk\.(0|1|2)\.ffn_(up|down|gate|gate_up)_(ch)?exps"
    main, held = found.shares
    assert (held.first, held.last, held.experts_first, held.experts_last) == (0, 3, 3, 3)
    assert (main.experts_first, main.experts_last, main.first) == (0, 2, None)
    assert main.weights + held.weights == MIXTURE.weights


def test_the_blocks_whose_experts_stay_can_be_set() -> None:
    found = plan(MIXTURE, [gpu(PLENTY)], n_cpu_moe=2, override_tensor=(("attn", "CPU"),))
    assert found.llama.overrides == (
        ("attn", "CPU"),
        (r"^blk\.(0|1)\.ffn_(up|down|gate|gate_up)_(ch)?exps", "CPU"),
    )


def test_layers_of_several_devices_are_passed_as_counts() -> None:
    found = plan(DENSE, [gpu(2_500 * MIB), gpu(2_500 * MIB, "GPU1")], n_ctx=512)
    assert (found.llama.devices, found.llama.tensor_split) == (("GPU0", "GPU1"), (2.0, 3.0))
    assert found.n_gpu_layers == 5
    assert found.local == "GPU1"


def test_proportions_and_the_only_device_can_be_set() -> None:
    two = [gpu(PLENTY), gpu(PLENTY, "GPU1")]
    found = plan(DENSE, two, tensor_split=(3.0, 2.0))
    assert (found.llama.devices, found.llama.tensor_split) == (("GPU0", "GPU1"), (3.0, 2.0))
    alone = plan(DENSE, two, split_mode="none", main_gpu=1)
    assert (alone.llama.devices, alone.llama.split_mode) == (("GPU1",), "layer")
    rows = plan(DENSE, two, split_mode="row", main_gpu=1, tensor_split=(3.0, 1.0))
    assert (rows.llama.devices, rows.llama.split_mode, rows.llama.main_gpu) == (("GPU0", "GPU1"), "row", 1)
    assert rows.llama.tensor_split == (3.0, 1.0)


def test_parts_of_other_machines_are_not_for_projectors_and_drafts() -> None:
    found = plan(DENSE, [gpu(PLENTY, "RPC0", "rpc")])
    assert (found.llama.devices, found.local) == (("RPC0",), None)


@pytest.mark.parametrize("device", ["cpu", "CPU"])
def test_the_cpu_alone(device: str) -> None:
    found = plan(DENSE, [gpu(PLENTY)], device=device)
    assert (found.n_gpu_layers, found.llama.devices, len(found.shares)) == (0, (), 1)


def test_an_unknown_device_is_named_with_the_known_ones() -> None:
    with pytest.raises(SettingsError, match="no device 'nowhere'; it has CPU, GPU0"):
        plan(DENSE, [gpu(PLENTY)], device="nowhere")


def test_a_required_accelerator_that_is_missing() -> None:
    with pytest.raises(SettingsError, match=r"require_accelerator: .*found: none"):
        plan(DENSE, [], require_accelerator=True)
    with pytest.raises(InsufficientMemory, match=r"require_accelerator: .*GPU0 has 0 MiB free"):
        plan(DENSE, [gpu(0)], require_accelerator=True)
    assert plan(DENSE, [gpu(PLENTY)], require_accelerator=True).n_gpu_layers == 5


def test_what_fits_nowhere_is_refused_with_figures() -> None:
    with pytest.raises(InsufficientMemory) as caught:
        plan(DENSE, [gpu(1_500 * MIB)], main=1_000 * MIB)
    assert "needs 3.9 GiB" in caught.value.message
    assert "1000 MiB of main memory, 1.5 GiB on GPU0" in caught.value.message
    assert caught.value.needed_bytes is not None
    assert caught.value.needed_bytes > 4_000 * MIB


@pytest.mark.parametrize(
    ("kind", "beside", "pinned", "fits"),
    [
        ("igpu", 0, 0, True),
        ("igpu", 1_000 * MIB, 0, False),
        ("igpu", 0, 1_000 * MIB, False),
        ("rpc", 1_000 * MIB, 0, True),
        ("gpu", 1_000 * MIB, 1_000 * MIB, True),
    ],
)
def test_memory_of_an_integrated_device_counts_once(kind: str, beside: int, pinned: int, fits: bool) -> None:
    """Weights, tensors that the user's patterns put there, the projector and the draft model take main memory."""
    parts = msgspec.structs.replace(DENSE, pinned=(("GPU0", pinned),))
    device = gpu(6_500 * MIB, kind=kind)
    if not fits:
        with pytest.raises(InsufficientMemory, match=r"6\.3 GiB of it on GPU0|5\.4 GiB of it on GPU0"):
            plan(parts, [device], main=4_900 * MIB, beside=beside, n_ctx=512)
        return
    found = plan(parts, [device], main=4_900 * MIB, beside=beside, n_ctx=512)
    assert found.n_gpu_layers == 5
    main, held = found.shares
    assert held.memory == device.free_bytes - (beside if kind != "rpc" else 0)
    assert main.memory == 4_900 * MIB - (beside if kind != "gpu" else 0)
    assert main.total + held.total < (4_900 * MIB if kind == "igpu" else PLENTY)


def test_a_model_whose_header_was_not_read_follows_the_settings() -> None:
    assert plan(ModelParts(), [gpu(PLENTY)], n_gpu_layers=3).n_gpu_layers == 3
    assert plan(ModelParts(), [gpu(PLENTY)]).n_gpu_layers == 0


@pytest.mark.parametrize(
    ("layers", "device", "warning"),
    [
        (-1, None, "n_gpu_layers = all, and llama.cpp finds no accelerator"),
        (7, None, "n_gpu_layers = 7, and llama.cpp finds no accelerator"),
        (None, None, ""),
        (0, None, ""),
        (-1, "cpu", ""),
    ],
)
def test_layers_that_find_no_accelerator_are_no_silence(
    layers: int | None, device: str | None, warning: str
) -> None:
    settings = EngineSettings(
        parts=DENSE, device=device, placement=PlacementOptions(n_gpu_layers=layers), n_ctx=512
    )
    for parts in (DENSE, ModelParts()):
        plan = plan_devices(msgspec.structs.replace(settings, parts=parts), [], PLENTY)
        assert plan.warning.startswith(warning) and bool(plan.warning) == bool(warning)


def test_the_warning_names_peers_that_are_missing() -> None:
    settings = EngineSettings(parts=DENSE, placement=PlacementOptions(n_gpu_layers=-1), n_ctx=512)
    plan = plan_devices(settings, [], PLENTY, 0, {"a:1": "it does not answer in time"})
    assert "; a:1: it does not answer in time: the CPU computes everything" in plan.warning


@pytest.mark.parametrize(
    ("parts", "devices", "values", "expected"),
    [
        (DENSE, [gpu(PLENTY)], {}, True),
        (MIXTURE, [gpu(PLENTY)], {}, True),
        (DENSE, [], {}, False),
        (DENSE, [gpu(PLENTY)], {"n_gpu_layers": 4}, False),
        (DENSE, [gpu(2500 * MIB), gpu(3500 * MIB, "GPU1")], {"n_ctx": 1024}, False),
        (MIXTURE, [gpu(PLENTY)], {"n_cpu_moe": 1}, False),
        (DENSE, [gpu(PLENTY)], {"override_tensor": ((r"blk\.0\.attn_q", "CPU"),)}, False),
        (ModelParts(), [gpu(PLENTY)], {"n_gpu_layers": -1}, False),
    ],
    ids=[
        "all",
        "a mixture",
        "no device",
        "a block less",
        "two devices",
        "some experts",
        "a tensor",
        "unread",
    ],
)
def test_a_device_computes_all_or_not(
    parts: ModelParts, devices: list[DeviceInfo], values: dict[str, Any], *, expected: bool
) -> None:
    assert plan(parts, devices, **values).is_on_one_device is expected
