"""The modules of the page that need no browser: their own tests, in node; and what the script weighs."""

from __future__ import annotations

import gzip
import shutil
import subprocess
from pathlib import Path

import pytest

from jan_serve.resources import resource

MOST_COMPRESSED_BYTES = 120_000
WEB = Path(__file__).resolve().parents[2] / "web"


def test_the_modules_of_the_page() -> None:
    node = shutil.which("node")
    if node is None or not (WEB / "node_modules" / "esbuild").is_dir():
        pytest.skip("node or the page's packages are not there (make page)")
    done = subprocess.run(
        [node, str(WEB / "test" / "run.mjs")], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


def test_the_script_is_light() -> None:
    if resource("web", "dist", "index.html") is None:
        pytest.skip("the page is not built (make page)")
    scripts = [path.read_bytes() for path in (WEB / "dist" / "assets").glob("*.js")]
    assert sum(len(gzip.compress(script, 9)) for script in scripts) <= MOST_COMPRESSED_BYTES
