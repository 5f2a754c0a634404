"""Imports without what can wait."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_a_process_without_pydantic_does_not_import_it() -> None:
    program = (
        "from jan_serve.quick_imports import quick_imports\n"
        "import sys\n"
        "with quick_imports(): import jan_serve.ipc.messages\n"
        "print('pydantic' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_pydantic_settings_is_imported_where_a_variable_is_set(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from jan_serve.config import load_settings\n"
        "print(load_settings().settings.port, 'pydantic_settings' in sys.modules)\n"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAN_SERVE_")}
    environment["XDG_CONFIG_HOME"] = str(tmp_path)
    for variables, printed in (({}, "1337 False\n"), ({"JAN_SERVE_PORT": "99"}, "99 True\n")):
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            env=environment | variables,
        )
        assert done.stdout == printed
