"""Imports without what can wait."""

from __future__ import annotations

import subprocess
import sys


def test_a_process_without_pydantic_does_not_import_it() -> None:
    program = (
        "from jan_serve.quick_imports import quick_imports\n"
        "import sys\n"
        "with quick_imports(): import jan_serve.ipc.messages\n"
        "print('pydantic' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
