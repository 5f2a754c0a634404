"""Pulls in separate processes: killed, two at once, on a full disk, without a network."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jan_serve.store.resolve import ModelResolver
from tests.integration.store.conftest import FILE, REPO, Bench
from tests.support.deadline import deadline
from tests.support.processes import wait_until
from tests.support.servers.fake_hub import Fault

ROOT = Path(__file__).resolve().parents[3]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "jan_serve", *arguments]


def environment(bench: Bench, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("JAN_SERVE_", "HF_"))}
    state = {
        "JAN_SERVE_DATA_DIR": str(bench.models.parent),
        "JAN_SERVE_CONFIG": str(bench.models.parent / "config.toml"),
        "JAN_SERVE_HF_ENDPOINT": bench.hub.url,
        "PYTHONPATH": str(ROOT / "app"),
        "NO_PROXY": "*",
    }
    return kept | state | more


@pytest.fixture
def ready(bench: Bench) -> Bench:
    (bench.models.parent / "config.toml").write_text("")
    return bench


def start(bench: Bench, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command(*arguments), env=environment(bench), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def test_two_processes_share_one_transfer(ready: Bench) -> None:
    ready.hub.file_faults.append(Fault(stall_at=1 << 20))
    first = start(ready, "pull", f"{REPO}:Q8_0", "--json")
    assert ready.hub.stalled.wait(60)
    second = start(ready, "pull", f"{REPO}:Q8_0", "--json")
    assert second.stderr is not None
    with deadline(second):
        while b"another download of it is running" not in (line := second.stderr.readline()):
            assert line, "the second process ended without waiting"
    ready.hub.released.set()
    outcomes = [process.communicate(timeout=60) for process in (first, second)]
    assert [first.returncode, second.returncode] == [0, 0], outcomes
    assert {json.loads(out)["name"] for out, _ in outcomes} == {f"{REPO}/Tiny-Q8_0"}
    assert ready.file().read_bytes() == ready.content()
    # The transfer that stalled was cut when the hub let go, and went on with the rest.
    assert len([asked for asked in ready.hub.asked("/resolve/") if "range" not in asked.headers]) == 1


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_a_kill_at_any_time_leaves_no_half_model(ready: Bench) -> None:
    other = ready.models / "other.gguf"
    other.parent.mkdir(parents=True)
    other.write_bytes(ready.content())
    randomness = random.Random(1)
    for number in range(6):
        cut = randomness.randrange(1 << 20, len(ready.content()))
        ready.hub.stalled.clear()
        ready.hub.file_faults.append(Fault(stall_at=cut % 900_000 + 10_000))
        process = start(ready, "pull", f"{REPO}:Q8_0")
        assert ready.hub.stalled.wait(60), process.communicate(timeout=5)
        time.sleep(randomness.uniform(0, 0.02))
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=120)
        assert [entry.name for entry in ModelResolver(ready.models).entries()] == ["other"], number
    done = subprocess.run(
        command("pull", f"{REPO}:Q8_0"), env=environment(ready), capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert ready.file().read_bytes() == ready.content()
    assert ready.incoming() == []
    assert other.read_bytes() == ready.content()


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
def test_ctrl_c_ends_at_once_and_promises_to_resume(ready: Bench) -> None:
    ready.hub.file_faults.append(Fault(stall_at=1 << 20))
    # A shell starts what runs in the background with SIGINT ignored, which children would inherit.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = start(ready, "pull", f"{REPO}:Q8_0")
    signal.signal(signal.SIGINT, before)
    assert ready.hub.stalled.wait(60)
    wait_until(lambda: any(path.stat().st_size for path in ready.incoming(".part")))
    process.send_signal(signal.SIGINT)
    _, talk = process.communicate(timeout=60)
    assert process.returncode == 130, talk
    assert b"resume the download" in talk
    assert b"Traceback" not in talk
    assert len(ready.incoming(".part")) == 1


def has_network_namespaces() -> bool:
    if shutil.which("unshare") is None:
        return False
    done = subprocess.run(["unshare", "-rn", "true"], capture_output=True, check=False)
    return done.returncode == 0


@pytest.mark.skipif(not has_network_namespaces(), reason="needs unshare -rn (user and network namespaces)")
def test_pull_without_any_network_reports_offline_in_two_seconds(ready: Bench) -> None:
    env = environment(ready, JAN_SERVE_HF_ENDPOINT="https://huggingface.co")
    began = time.monotonic()
    subprocess.run(command("--version"), env=env, capture_output=True, check=True)
    started = time.monotonic()
    done = subprocess.run(
        ["unshare", "-rn", *command("pull", "Qwen/Qwen3-0.6B-GGUF:Q8_0")],
        env=env,
        capture_output=True,
        timeout=120,
        check=False,
    )
    took = time.monotonic() - started
    assert done.returncode == 1
    assert b"offline" in done.stderr
    assert b"Traceback" not in done.stderr
    assert took < 6 + 10 * (started - began), "2 s, and the rest for starting on a busy machine"
    listed = subprocess.run(
        ["unshare", "-rn", *command("ls", "--json")], env=env, capture_output=True, timeout=120, check=False
    )
    assert listed.returncode == 0


def test_a_full_file_system(ready: Bench) -> None:
    """A limit on file sizes stands for a disk that fills up within a file."""
    resource = pytest.importorskip("resource")

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))

    env = environment(ready)
    done = subprocess.run(
        command("pull", f"{REPO}:Q8_0"),
        env=env,
        capture_output=True,
        timeout=60,
        check=False,
        preexec_fn=limit,
    )
    assert done.returncode == 1
    assert b"The disk is full" in done.stderr
    assert ready.incoming() == []
    done = subprocess.run(
        command("pull", f"{REPO}:Q8_0"), env=env, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (ready.models / REPO / FILE).read_bytes() == ready.content()
