"""Weights that llama.cpp reorders for its kernels, and the same weights in the file's order."""

from __future__ import annotations

import ctypes
import platform
import re
import subprocess
import sys
from pathlib import Path

import llama_cpp
import pytest

from models.recipe import fixtures
from tests.support.engine.worker import running_worker

pytestmark = pytest.mark.integration

PROMPT = "hello water house door people " * 4
_Q4_0 = 2  # LLAMA_FTYPE_MOSTLY_Q4_0
LOAD = """
import sys
from jan_serve.engine.llama import backend
from jan_serve.engine.llama.model import LlamaModel
backend.start(print, verbose=True)
LlamaModel(sys.argv[1], use_repack=sys.argv[2] == "True").close()
"""


@pytest.fixture(scope="module")
def q4_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of a quantisation that llama.cpp reorders on x86 and ARM."""
    folder = tmp_path_factory.mktemp("q4")
    source, path = folder / "f32.gguf", folder / "q4.gguf"
    fixtures.write_tiny_llama(source, quantize=False)
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = _Q4_0
    status = llama_cpp.llama_model_quantize(str(source).encode(), str(path).encode(), ctypes.pointer(params))
    assert status == 0
    return path


@pytest.mark.skipif(
    platform.machine().lower() not in ("x86_64", "amd64", "aarch64", "arm64"),
    reason="llama.cpp reorders Q4_0 on x86 and ARM",
)
@pytest.mark.parametrize("use_repack", [True, False])
def test_the_setting_decides_whether_weights_are_reordered(q4_llama: Path, use_repack: bool) -> None:
    command = [sys.executable, "-c", LOAD, str(q4_llama), str(use_repack)]
    log = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    held = set(re.findall(r"(\w+) model buffer size", log))
    preferred = set(re.findall(r"preferred buffer type (\w+)", log))
    assert held
    # The processor decides which layout is tried (CPU_REPACK, AMX …), and whether it takes these weights.
    assert bool((held | preferred) - {"CPU", "CPU_Mapped"}) is use_repack


def test_the_same_is_computed_up_to_rounding(q4_llama: Path) -> None:
    seen: list[dict[int, float]] = []
    for use_repack in (True, False):
        with running_worker(q4_llama, use_repack=use_repack, n_ctx=512, parallel=2) as worker:
            [token] = worker.run_one(PROMPT, max_tokens=1, logprobs=8, return_tokens=True).choice.tokens
            seen.append({top.id: top.logprob for top in token.top})
    assert set(seen[0]) == set(seen[1])
    for token, logprob in seen[0].items():
        assert seen[1][token] == pytest.approx(logprob, abs=0.05)
