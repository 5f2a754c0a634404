"""The floor: the same work as the curves' rows by a bare loop over llama.cpp's low-level functions, greedy, without a
server, a sampler chain or text. Runs as a process of its own and prints the figures of both rows as JSON.

    python -m benchmarks.raw_loop MODEL [THREADS]
"""

from __future__ import annotations

import ctypes
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import llama_cpp
import numpy as np

from benchmarks.figures import CONTEXTS, STREAMS, Figures

NAME = "raw loop"
_BATCH = 2048
_TOKENS_A_STREAM = 32
_PROMPT_TOKENS = 28


class RawLoop:
    """One context of llama.cpp and one reused batch."""

    def __init__(self, model: Path, threads: int) -> None:
        llama_cpp.llama_backend_init()
        self._quiet = llama_cpp.llama_log_callback(lambda *_: None)
        llama_cpp.llama_log_set(self._quiet, ctypes.c_void_p())
        loaded = llama_cpp.llama_model_load_from_file(
            str(model).encode(), llama_cpp.llama_model_default_params()
        )
        if loaded is None:
            raise RuntimeError(f"llama.cpp does not load {model}")
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = (CONTEXTS[-1] + 2) * 1024
        params.n_batch, params.n_seq_max, params.kv_unified = _BATCH, STREAMS[-1], True
        params.n_threads = params.n_threads_batch = threads
        context = llama_cpp.llama_init_from_model(loaded, params)
        vocab = llama_cpp.llama_model_get_vocab(loaded)
        memory = None if context is None else llama_cpp.llama_get_memory(context)
        if context is None or vocab is None or memory is None:
            raise RuntimeError("llama.cpp makes no context")
        self._context, self._memory = context, memory
        self._n_vocab = llama_cpp.llama_vocab_n_tokens(vocab)
        self._batch = llama_cpp.llama_batch_init(_BATCH, 0, 1)

    def compute(self, entries: list[tuple[int, int, int, bool]]) -> None:
        """Decode (token, position, sequence, wanted) in one batch, and take the best token of each wanted row."""
        batch = self._batch
        batch.n_tokens = len(entries)
        for i, (token, position, sequence, wanted) in enumerate(entries):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, position, 1
            batch.seq_id[i][0], batch.logits[i] = sequence, wanted
        code = llama_cpp.llama_decode(self._context, batch)
        if code != 0:
            raise RuntimeError(f"llama_decode returned {code}")
        for i, (_, _, _, wanted) in enumerate(entries):
            if wanted:
                row = llama_cpp.llama_get_logits_ith(self._context, i)
                np.ctypeslib.as_array(row, shape=(self._n_vocab,)).argmax()

    def clear(self) -> None:
        llama_cpp.llama_memory_clear(self._memory, False)

    def token(self, number: int) -> int:
        return 300 + number * 7919 % (self._n_vocab - 600)

    def at_context(self, length: int) -> tuple[float, float]:
        """Prefill tokens per second of a prompt, and ms between tokens after it."""
        self.clear()
        start = time.perf_counter()
        for begin in range(0, length, _BATCH):
            end = min(begin + _BATCH, length)
            self.compute([(self.token(i), i, 0, i == length - 1) for i in range(begin, end)])
        prefill = time.perf_counter() - start
        steps: list[float] = []
        for i in range(length, length + 24):
            start = time.perf_counter()
            self.compute([(self.token(i), i, 0, True)])
            steps.append(time.perf_counter() - start)
        return length / prefill, 1e3 * statistics.mean(steps)

    def with_streams(self, count: int) -> float:
        """Tokens per second of several sequences with short prompts; the time includes the prompts."""
        self.clear()
        start = time.perf_counter()
        self.compute(
            [
                (self.token(s * 100 + i), i, s, i == _PROMPT_TOKENS - 1)
                for s in range(count)
                for i in range(_PROMPT_TOKENS)
            ]
        )
        for i in range(_PROMPT_TOKENS, _PROMPT_TOKENS + _TOKENS_A_STREAM - 1):
            self.compute([(self.token(s + i), i, s, True) for s in range(count)])
        return count * _TOKENS_A_STREAM / (time.perf_counter() - start)


def measure(model: Path, threads: int) -> dict[str, Figures]:
    """The figures of the rows context-curve and stream-curve, in a process of its own. Blocks for minutes."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.raw_loop", str(model), str(threads)],
        check=True,
        capture_output=True,
        text=True,
    )
    figures: dict[str, Figures] = json.loads(done.stdout)
    return figures


def _main(model: Path, threads: int) -> None:
    loop = RawLoop(model, threads)
    loop.at_context(64)
    contexts: Figures = {}
    for thousands in CONTEXTS:
        rate, between = loop.at_context(thousands * 1000)
        contexts |= {f"prefill_{thousands}k_per_s": rate, f"decode_{thousands}k_ms": between}
    streams = {f"streams_{count}": loop.with_streams(count) for count in STREAMS}
    print(json.dumps({"context-curve": contexts, "stream-curve": streams}))


if __name__ == "__main__":
    _main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1)
