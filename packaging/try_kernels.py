"""Answers with the built-in model in one process, and names the kernels that ggml chose for this processor.

    python packaging/try_kernels.py

`python` is that of an environment with a portable jan-serve. One process, so that all of it runs in an emulator:

    qemu-x86_64 -cpu Nehalem python packaging/try_kernels.py
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from jan_serve.engine.llama import backend
from jan_serve.resources import builtin_model


def main() -> None:
    backend.start()
    loaded = sorted(
        set(re.findall(r"libggml-cpu[^/\s]*", Path("/proc/self/maps").read_text(encoding="utf-8")))
    )
    if not loaded:
        raise SystemExit("no kernels are loaded")
    # jan_serve.engine.llama has made the bindings of a bundled wheel importable.
    from llama_cpp import Llama

    model: Any = Llama(model_path=str(builtin_model()), n_ctx=256, n_threads=1, verbose=False)
    message = {"role": "user", "content": "Who are you?"}
    answer = model.create_chat_completion([message], max_tokens=16, temperature=0)
    print(f"{' '.join(loaded)}: {answer['choices'][0]['message']['content']}")


if __name__ == "__main__":
    main()
