"""What a download that fails leaves for the next one."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from jan_serve.errors import (
    DigestMismatch,
    HubError,
    HubUnavailable,
    InsufficientMemory,
    InsufficientStorage,
    JanServeError,
    StoreError,
    Unavailable,
)
from jan_serve.store.hub import download as download_module
from tests.integration.store.conftest import Bench
from tests.support.servers.fake_hub import Fault

pytestmark = pytest.mark.anyio

RECEIVED = 1 << 20
LOGIN_PAGE = Fault(body=b"<html>Please log in</html>", headers={"Content-Type": "text/html"})


async def interrupt(bench: Bench) -> None:
    """Leave `RECEIVED` bytes, as an earlier session does."""
    bench.hub.file_faults.extend([Fault(cut_at=RECEIVED)] + [Fault(status=503)] * 3)
    with pytest.raises(HubUnavailable):
        await bench.pull()
    assert kept(bench) == RECEIVED


def kept(bench: Bench) -> int:
    """Bytes of the only kept file."""
    (path,) = bench.incoming()
    assert path.suffix == ".part"
    return path.stat().st_size


async def assert_resumes(bench: Bench) -> None:
    await bench.pull()
    assert bench.hub.asked("/resolve/")[-1].headers["range"] == f"bytes={RECEIVED}-"
    assert bench.file().read_bytes() == bench.content()
    assert bench.incoming() == []


@pytest.mark.parametrize(
    "fault",
    [
        Fault(status=401, headers={"X-Error-Code": "GatedRepo"}),
        Fault(status=403),
        Fault(status=404),
        Fault(status=418),
        Fault(status=204),
        Fault(location="ftp://example.com/x"),
        Fault(headers={"Content-Encoding": "gzip"}),
        Fault(headers={"Content-Type": "text/html"}),
    ],
    ids=["gated", "forbidden", "gone", "teapot", "no content", "bad redirect", "encoded", "another type"],
)
async def test_a_hub_that_refuses_the_rest(bench: Bench, fault: Fault) -> None:
    await interrupt(bench)
    bench.hub.file_faults.append(fault)
    with pytest.raises(HubError):
        await bench.pull()
    assert kept(bench) == RECEIVED
    await assert_resumes(bench)


@pytest.mark.parametrize(
    "fault",
    [
        LOGIN_PAGE,
        Fault(body=b"<html>" * 9, headers={"Content-Type": "text/html"}, chunked=True),
        Fault(no_range=True, length=1000),
    ],
    ids=["login page", "login page in chunks", "wrong length"],
)
async def test_another_file_in_place_of_the_rest(bench: Bench, fault: Fault) -> None:
    await interrupt(bench)
    bench.hub.file_faults.append(fault)
    with pytest.raises(DigestMismatch):
        await bench.pull()
    assert kept(bench) == RECEIVED
    assert not any("damaged" in note for note in bench.seen.notes)
    await assert_resumes(bench)


async def test_another_file_in_place_of_the_rest_after_a_cut(bench: Bench) -> None:
    bench.hub.file_faults.extend([Fault(cut_at=RECEIVED), LOGIN_PAGE])
    with pytest.raises(DigestMismatch):
        await bench.pull()
    await assert_resumes(bench)


async def assert_needs_no_transfer(bench: Bench, n_transfers: int = 1) -> None:
    assert kept(bench) == len(bench.content())
    await bench.pull()
    assert len(bench.hub.asked("/resolve/")) == n_transfers
    assert bench.file().read_bytes() == bench.content()


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS])
async def test_a_verified_file_that_cannot_get_its_name(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    replace = os.replace

    def fail(source: Path, target: Path) -> None:
        if target == bench.file():
            raise OSError(number, os.strerror(number))
        replace(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", fail)
        with pytest.raises(StoreError, match="Cannot write to"):
            await bench.pull()
    await assert_needs_no_transfer(bench)


async def test_a_verified_file_that_cannot_be_opened_now(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Path) -> None:
        raise Unavailable("The server cannot open more files now.")

    with monkeypatch.context() as patched:
        patched.setattr(download_module, "read_gguf_header", fail)
        with pytest.raises(Unavailable):
            await bench.pull()
    await assert_needs_no_transfer(bench)


class BrokenFile:
    """A file whose method `name` fails with an error number."""

    def __init__(self, file: Any, name: str, number: int) -> None:
        self._file, self._name, self._number = file, name, number

    def __getattr__(self, name: str) -> Any:
        return self._fail if name == self._name else getattr(self._file, name)

    def _fail(self, *_: object) -> None:
        raise OSError(self._number, os.strerror(self._number))


@pytest.mark.parametrize(
    ("method", "number", "is_kept"),
    [
        ("open", errno.EMFILE, True),
        ("read", errno.ENOMEM, True),
        ("write", errno.EIO, True),
        ("write", errno.ENOSPC, False),
        # Otherwise, a bad sector would fail every later attempt, too.
        ("read", errno.EIO, False),
    ],
)
async def test_errors_of_the_disk_at_a_resume(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, method: str, number: int, is_kept: bool
) -> None:
    await interrupt(bench)
    real_open: Any = Path.open

    def open_broken(self: Path, *args: Any, **kwargs: Any) -> Any:
        if self.suffix != ".part":
            return real_open(self, *args, **kwargs)
        if method == "open":
            raise OSError(number, os.strerror(number))
        return BrokenFile(real_open(self, *args, **kwargs), method, number)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", open_broken)
        with pytest.raises(JanServeError) as caught:
            await bench.pull()
    kinds = {errno.ENOSPC: InsufficientStorage, errno.EMFILE: Unavailable, errno.ENOMEM: InsufficientMemory}
    assert isinstance(caught.value, kinds.get(number, StoreError))
    if is_kept:
        await assert_resumes(bench)
    else:
        assert bench.incoming() == []
