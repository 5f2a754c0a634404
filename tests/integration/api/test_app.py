from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import jan_serve

pytestmark = pytest.mark.anyio
_APP = str(Path(jan_serve.__file__).parent.parent)


def test_the_front_does_not_import_llama_cpp() -> None:
    """A native crash or a gigabyte of library must stay in the worker."""
    code = (
        f"import sys; sys.path.insert(0, {_APP!r}); import jan_serve.api.app, jan_serve.api.server;"
        " print(sorted(sys.modules.keys() & {'llama_cpp', 'numpy', 'llguidance', 'jan_serve.engine'}))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout.strip() == "[]"


_AT_START = "outline|dialect|options|errors|metrics|claude_clients"
"""Modules of a protocol that a start needs."""


def test_a_server_starts_without_the_handlers_of_its_protocols() -> None:
    """Each is imported by the first request to its paths. Imports are most of a start."""
    code = (
        f"import re, sys; sys.path.insert(0, {_APP!r});"
        " import jan_serve.cli.commands.servers.serve, jan_serve.api.server;"
        rf" own = re.compile(r'jan_serve\.dialects\.(?!shared\.)\w+\.(?!({_AT_START})$)');"
        " print(*sorted(filter(own.match, sys.modules)), *sorted(sys.modules.keys() & {'httpx2',"
        " 'huggingface_hub', 'prompt_toolkit', 'jinja2', 'ruamel', 'requests', 'rich'}))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout.strip() == ""


_MOST_MODULES = 309
"""Most modules of ours when a server listens. Each takes half a millisecond, and a start without models hardly does
anything but import."""


def test_a_server_starts_with_few_modules() -> None:
    code = (
        f"import sys; sys.path.insert(0, {_APP!r}); import jan_serve.cli.server.head_start, jan_serve.cli.main,"
        " jan_serve.cli.app, jan_serve.cli.commands.servers.serve, jan_serve.api.server,"
        " jan_serve.control.control_plane; print(sum(name.startswith('jan_serve.') for name in sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert int(run.stdout) <= _MOST_MODULES


@pytest.mark.parametrize(
    "module", ["engine.worker", "helpers.child", "chat.template", "helpers.work.compiling"]
)
def test_the_other_processes_have_no_event_loop(module: str) -> None:
    code = (
        f"import sys; sys.path.insert(0, {_APP!r}); import jan_serve.{module};"
        " print(*sorted(sys.modules.keys() & {'asyncio', 'fastapi', 'pydantic', 'rich', 'typer'}))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout.strip() == ""
