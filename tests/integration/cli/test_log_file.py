"""The log of a busy server stays within its limit, and only one of two servers writes it."""

from __future__ import annotations

import http.client
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.models import model_folder, tiny_llama
from tests.support.processes import wait_until
from tests.support.served import serving

__all__ = ["model_folder", "tiny_llama"]

pytestmark = pytest.mark.integration

LIMIT = 64 * 1024
N_REQUESTS = 1500


def test_many_requests(tmp_path: Path, tiny_llama: Path) -> None:
    flags = ("--log-max-bytes", str(LIMIT), "--log-files", "2", "--log-level", "debug")
    with serving(tmp_path, "--port", "0", "--model", str(tiny_llama), *flags) as server:
        connection = http.client.HTTPConnection(urlsplit(server.url()).netloc, timeout=30)
        for number in range(N_REQUESTS):
            connection.request("GET", f"/v1/models/{'x' * 100}{number}")
            with connection.getresponse() as answer:
                answer.read()
        connection.close()
        folder = tmp_path / "data" / "logs"
        sizes = {path.name: path.stat().st_size for path in folder.iterdir() if path.suffix != ".lock"}
        assert sorted(sizes) == ["server.log", "server.log.1"]
        assert all(size <= LIMIT for size in sizes.values())
        # More was written than is kept: old files were deleted.
        assert len(server.log) > 2 * LIMIT
        kept = (folder / "server.log").read_text(encoding="utf-8").splitlines()
        assert kept[-1].split()[-1] == server.lines[-1].split()[-1]

        with serving(tmp_path, "--port", "0", "--model", str(tiny_llama)) as second:
            second.url()
            wait_until(lambda: "no log file: another server writes to" in second.log)
