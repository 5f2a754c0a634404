from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import jan_serve

_APP = str(Path(jan_serve.__file__).parent.parent)


def test_the_front_does_not_import_llama_cpp() -> None:
    """A native crash or a gigabyte of library must stay in the worker."""
    code = (
        f"import sys; sys.path.insert(0, {_APP!r}); import jan_serve.api.app, jan_serve.api.server;"
        " print(sorted(sys.modules.keys() & {'llama_cpp', 'numpy', 'llguidance', 'jan_serve.engine'}))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout.strip() == "[]"
