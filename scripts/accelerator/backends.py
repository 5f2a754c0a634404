"""llama.cpp's backends: how each is compiled, and by what a machine shows that it has one."""

from __future__ import annotations

import platform
import shutil
from dataclasses import dataclass
from pathlib import Path

from scripts.installer.errors import InstallError


@dataclass(frozen=True, slots=True)
class Backend:
    """tool: the program that compiles for it, if it needs one. On cpu nothing goes to a device."""

    name: str
    cmake_args: str
    tool: str | None = None

    @property
    def flags(self) -> str:
        """Flags of `jan-serve serve` with which a model is on the device or fails."""
        return "--device cpu" if self.name == "cpu" else "--n-gpu-layers all --require-accelerator"


BACKENDS = {
    backend.name: backend
    for backend in (
        Backend("cuda", "-DGGML_CUDA=on", "nvcc"),
        Backend("hip", "-DGGML_HIP=on", "hipcc"),
        Backend("metal", "-DGGML_METAL=on"),
        Backend("vulkan", "-DGGML_VULKAN=on", "glslc"),
        Backend("cpu", ""),
    )
}


def chosen_backend(name: str | None) -> Backend:
    """The named one, or the first that this machine seems to have. Raises InstallError."""
    if name is not None:
        return BACKENDS[name]
    if platform.system() == "Darwin":
        return BACKENDS["metal"]
    for each in BACKENDS.values():
        if each.tool is not None and tool_path(each.tool) is not None:
            return each
    tools = ", ".join(f"{each.tool} ({each.name})" for each in BACKENDS.values() if each.tool)
    raise InstallError(f"found no compiler for an accelerator: {tools}; --backend names one, also `cpu`")


def tool_path(tool: str) -> str | None:
    """Also where CUDA and ROCm install it outside PATH."""
    found = shutil.which(tool)
    places = (Path("/usr/local/cuda/bin"), Path("/opt/rocm/bin"))
    return found or next((str(place / tool) for place in places if (place / tool).exists()), None)
