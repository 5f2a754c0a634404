"""Prints, for published models on machines, our plan beside the one of llama.cpp's `--fit`, and checks ours. pip
download --no-deps --no-binary llama-cpp-python llama-cpp-python==VERSION # the version of constraints.txt tar xf
llama_cpp_python-VERSION.tar.gz CXX=COMPILER python -m tests.conformance.fit llama_cpp_python-VERSION/vendor/llama.cpp
COMPILER is the one that compiled the installed llama.cpp, whose C++ library both use: c++ after `make install
LLAMA_COMPILER=system`; else a program that runs `zig c++` of the release in kernels/zig.txt."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import llama_cpp
import msgspec

from jan_serve.core.models import DeviceInfo
from jan_serve.errors import InsufficientMemory
from jan_serve.ipc.messages import EngineSettings
from jan_serve.placement.device_plan import ALL_LAYERS, DevicePlan, plan_devices
from jan_serve.store.gguf.gguf_header import read_gguf_header
from jan_serve.store.gguf.model_file import parts_of
from tests.conformance.fit.headers import ARCHITECTURES, write_header
from tests.unit.placement.shapes import SHAPES
from tests.unit.placement.test_layer_planner import GIB, MACHINES

_N_CTX: Final = 8192
_MACHINES: Final = (
    "8 + 16", "12 + 64", "16 + 64", "24 + 64", "24 + 128", "2x12 + 64", "2x24 + 64", "24 + 8 + 64", "8x80 + 512",
)  # fmt: skip
_EXPERTS: Final = "(up|down|gate_up|gate)_(ch|)exps"
"""The end of the pattern by which --fit leaves the experts of a block in main memory; of a part it has another one."""

Answer = dict[str, Any]


class Fit:
    """llama.cpp's `--fit` as a program (fit.cpp)."""

    def __init__(self, sources: Path, folder: Path) -> None:
        """Compiles it in `folder`; a minute. sources: llama.cpp's. Raises CalledProcessError."""
        self._program = folder / "fit"
        library = Path(llama_cpp.__file__).parent / "lib"
        includes = ("include", "ggml/include", "ggml/src", "common", "src", "vendor")
        command = [os.environ.get("CXX", "c++"), "-std=c++17", *(f"-I{sources / name}" for name in includes)]
        command += [str(Path(__file__).with_name("fit.cpp"))]
        command += [str(sources / "common" / f"{name}.cpp") for name in ("fit", "json", "log")]
        command += [f"-L{library}", f"-Wl,-rpath,{library}", "-lllama", "-lggml", "-lggml-base", "-lggml-cpu"]
        subprocess.run([*command, "-o", str(self._program)], check=True)

    def __call__(self, model: Path, free: Sequence[int], *plan: object) -> Answer:
        """What it chooses, or counts for `plan`. Raises CalledProcessError where llama.cpp cannot take the model."""
        command = [self._program, model, _N_CTX, ",".join(map(str, free)), *plan]
        found: Answer = json.loads(
            subprocess.check_output(list(map(str, command)), stderr=subprocess.DEVNULL)
        )
        return found


def our_plan(name: str, path: Path, machine: str) -> DevicePlan | None:
    """None: refused."""
    header = read_gguf_header(path)
    # The header has no vocabulary, only its size.
    parts = msgspec.structs.replace(
        parts_of(header, header.tensors, SHAPES[name].layers), n_vocab=SHAPES[name].vocab
    )
    kinds, main = MACHINES[machine]
    devices = [
        DeviceInfo(name=f"GPU{at}", kind=kind, description="", free_bytes=free, total_bytes=free)
        for at, (kind, free) in enumerate((kind, int(gib * GIB)) for kind, gib in kinds)
    ]
    try:
        return plan_devices(EngineSettings(parts=parts, n_ctx=_N_CTX), devices, int(main * GIB))
    except InsufficientMemory:
        return None


def ours(plan: DevicePlan | None, layers: int) -> str:
    """`-`: refused. `all`: everything on devices. Else blocks of each device, and those with their experts there."""
    if plan is None:
        return "-"
    parts = [part for part in plan.shares if part.kind != "cpu"]
    if not parts:
        return "cpu"
    left = {int(number) for pattern, _ in plan.llama.overrides for number in re.findall(r"\d+", pattern)}
    if not left and plan.n_gpu_layers == layers + 1 and len(parts) == 1:
        return "all"
    texts: list[str] = []
    for part in parts:
        blocks = range(part.first or 0, (part.last or 0) + 1) if part.last is not None else range(0)
        missing = len(left & set(blocks))
        texts.append(f"{len(blocks)}" + (f"({len(blocks) - missing})" if missing else ""))
    return "+".join(texts)


def theirs(answer: Answer, layers: int) -> str:
    """The same of `--fit`; ½: some matrices of the experts of one more block. `all`: it changes nothing."""
    if answer["layers"] < 0:
        return "all"
    left = [re.match(r"blk\\.(\d+)\\.(.*)", pattern) for pattern, _ in answer["overrides"]]
    whole = {int(match[1]) for match in left if match and match[2].endswith(_EXPERTS)}
    partly = {int(match[1]) for match in left if match and not match[2].endswith(_EXPERTS)}
    first, texts = layers + 1 - answer["layers"], list[str]()
    for units in map(int, answer["split"] if any(answer["split"]) else [answer["layers"]]):
        blocks = set(range(first, min(first + units, layers)))
        missing = len(blocks & (whole | partly))
        half = "½" if blocks & partly else ""
        texts.append(f"{len(blocks)}" + (f"({len(blocks) - missing}{half})" if missing else ""))
        first += units
    return "+".join(texts)


def counted(fit: Fit, path: Path, plan: DevicePlan, free: Sequence[int]) -> list[float]:
    """What llama.cpp counts on each device for our plan, as a share of what the plan says."""
    names = list(plan.llama.devices)
    split = [
        plan.llama.tensor_split[names.index(f"GPU{at}")] if f"GPU{at}" in names else 0
        for at in range(len(free))
    ]
    patterns = [pattern for pattern, _ in plan.llama.overrides]
    answer = fit(path, free, min(plan.n_gpu_layers, ALL_LAYERS), ",".join(map(str, split)), *patterns)
    found: list[float] = []
    for part in plan.shares:
        if part.kind == "cpu":
            continue
        there = answer["counted"][int(part.device.removeprefix("GPU"))]
        assert there <= part.memory, f"{part.device}: {there} of {part.memory} bytes"
        found.append(there / (part.weights + part.cache + part.compute))
    return found


def main() -> None:
    """Prints a line for each model and machine: ours, theirs, and what llama.cpp counts as a share of our plan."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.conformance.fit", description="Plans beside llama.cpp's --fit."
    )
    parser.add_argument("sources", type=Path, help="llama.cpp's, of the version that is installed")
    parser.add_argument("--model", action="append", choices=ARCHITECTURES, help="default: all")
    parser.add_argument("--machine", action="append", choices=_MACHINES, help="default: all")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="jan-serve-fit-") as name:
        folder = Path(name)
        fit = Fit(options.sources, folder)
        for model in options.model or ARCHITECTURES:
            path = folder / f"{model}.gguf"
            write_header(path, model)
            for machine in options.machine or _MACHINES:
                free = [int(gib * GIB) for _, gib in MACHINES[machine][0]]
                plan, layers = our_plan(model, path, machine), SHAPES[model].layers
                shares = counted(fit, path, plan, free) if plan is not None and plan.n_gpu_layers else []
                beside = theirs(fit(path, free), layers)
                checks = " ".join(f"{share:.2f}" for share in shares)
                print(f"{model}\t{machine}\t{ours(plan, layers)} / {beside}\t{checks}", flush=True)
            path.unlink()


if __name__ == "__main__":
    main()
