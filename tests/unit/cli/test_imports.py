"""Commands that ask a server avoid slow imports."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

_SHOW = """
import json, sys
from jan_serve.cli.main import build_app
build_app([sys.argv[1]])
print(json.dumps(sorted(sys.modules)))
"""


@pytest.mark.parametrize("command", ["ps", "load", "stop", "logs"])
def test_commands_that_ask_a_server(command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _SHOW, command], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = set(json.loads(done.stdout))
    assert f"jan_serve.cli.commands.{command}" in loaded
    heavy = {"fastapi", "httpx2", "prompt_toolkit", "llama_cpp", "numpy", "ruamel", "jan_serve.supervisor"}
    assert not loaded & heavy
