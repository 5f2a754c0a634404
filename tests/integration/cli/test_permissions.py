"""What a server writes that is nobody else's business can be read by its owner alone, whatever the umask."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import stat
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from jan_serve.proxy.fleet_file import FleetFile
from jan_serve.store.index import VariantIndex
from jan_serve.store.measurements import CalibrationIndex, SelfChecks
from jan_serve.store.resolve import ModelResolver
from tests.integration.http.support import serving_models
from tests.integration.store.conftest import FILE, REPO, hub
from tests.support.clients.raw_http import post
from tests.support.gguf.models import exact_llama, model_folder
from tests.support.servers.fake_hub import FakeHub
from tests.support.servers.managed import managed_app
from tests.support.servers.served import serving
from tests.unit.core.test_measurements import OLD
from tests.unit.store.gguf_builder import GgufBytes
from tests.unit.store.test_files import CALIBRATION, VARIANT

__all__ = ["exact_llama", "hub", "model_folder"]

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(sys.platform == "win32", reason="Windows has no permission bits"),
]


@pytest.fixture(autouse=True)
def open_umask() -> Any:
    """The worst case: what a program does not say is open to everybody."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_measurements_and_the_fleet_are_private(tmp_path: Path) -> None:
    SelfChecks(tmp_path).put(OLD)
    (check,) = (tmp_path / "selfcheck").iterdir()

    async def save() -> None:
        fleet = FleetFile(tmp_path / "fleet.json")
        fleet.open()
        fleet.save([])
        await fleet.close()

    asyncio.run(save())
    assert {mode(check), mode(tmp_path / "fleet.json")} == {0o600}


def test_logs_and_cached_prompts_are_private(tmp_path: Path, exact_llama: Path) -> None:
    with serving_models(tmp_path, exact_llama, flags=("--n-ctx", "512")) as server:
        body = {"messages": [{"role": "user", "content": "a secret " * 60}], "max_tokens": 4}
        assert post(server.url(), "/v1/chat/completions", body).status == 200
        server.process.send_signal(signal.SIGTERM)
        assert server.wait() == 0
    data = tmp_path / "data"
    states = [path for path in data.rglob("*.state") if path.is_file()]
    logs = [path for path in (data / "logs").iterdir() if path.suffix != ".lock"]
    assert states and logs
    assert {mode(path) for path in (*states, *logs)} == {0o600}
    assert {mode(path.parent) for path in states} == {0o700}


def test_nothing_in_a_used_data_folder_is_for_others(tmp_path: Path) -> None:
    data, models = tmp_path / "home" / "data", tmp_path / "models"
    (tmp_path / "config.toml").write_text(f'data_dir = "{data}"\nmodels_dir = "{models}"\n')
    with serving(tmp_path, "--port", "0") as server:
        body = {"messages": [{"role": "user", "content": "a secret " * 60}], "max_tokens": 2}
        assert post(server.url(), "/v1/chat/completions", body).status == 200
        variant = {"model": "mario", "from": "jan-tiny", "system": "a secret", "stream": False}
        assert post(server.url(), "/api/create", variant).status == 200
        server.process.send_signal(signal.SIGTERM)
        assert server.wait() == 0
    SelfChecks(data).put(OLD)
    made = [data.parent, data, *data.rglob("*"), *models.rglob("variants/*")]
    assert {path.name for path in made} >= {"data", "logs", "server.log", "selfcheck", "cache"}
    assert any(path.suffix == ".json" and path.parent.name == "variants" for path in made)
    assert {str(path): oct(mode(path)) for path in made if mode(path) & 0o077} == {}


@pytest.mark.anyio
@pytest.mark.parametrize("umask", [0o002, 0o022, 0o027, 0o077])
async def test_models_and_their_index_are_as_open_as_the_umask_says(
    umask: int, tmp_path: Path, hub: FakeHub
) -> None:
    """Programs and users share them. Instructions of variants are in no shared file."""
    os.umask(umask)
    content = GgufBytes().build()
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    async with managed_app(tmp_path, hub=hub.url) as managed:
        for path, body in {
            "/models/pull": {"model": f"{REPO}:Q8_0", "stream": False},
            f"/api/blobs/{digest}": content,
            "/api/create": {"model": "mine", "files": {"mine.gguf": digest}, "stream": False},
        }.items():
            sent: dict[str, Any] = {"content": body} if isinstance(body, bytes) else {"json": body}
            answer = await managed.client.post(path, **sent)
            assert answer.status_code in (200, 201), answer.text
        models = managed.folder
    (entry,) = [entry for entry in ModelResolver(models).entries() if entry.path.name == FILE]
    CalibrationIndex(models).put(entry, CALIBRATION)
    VariantIndex(models).put(VARIANT)

    made = {path.relative_to(models).as_posix(): path for path in models.rglob("*")}
    private = {name for name in made if "/variants/" in name}
    locks = {name for name in made if name.endswith(".lock")}
    shared = made.keys() - private - locks
    assert {name.split("/")[1] for name in made if name.startswith(".jan-serve/")} >= {
        "index", "incoming", "calibrations", "variants"
    }  # fmt: skip
    assert f"{REPO}/{FILE}" in shared and any(name.endswith("mine.gguf") for name in shared)
    expected = {True: 0o777 & ~umask, False: 0o666 & ~umask}
    assert {
        name: oct(mode(made[name])) for name in shared if mode(made[name]) != expected[made[name].is_dir()]
    } == {}
    assert {name: oct(mode(made[name])) for name in locks if mode(made[name]) & ~expected[False]} == {}
    assert {oct(mode(made[name])) for name in private} == {"0o600"}


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell the limits of other processes")
def test_no_process_leaves_a_memory_dump(tmp_path: Path, exact_llama: Path) -> None:
    import resource

    before, most = resource.getrlimit(resource.RLIMIT_CORE)
    if most == 0:
        pytest.skip("this system allows none at all")
    resource.setrlimit(resource.RLIMIT_CORE, (most, most))
    try:
        with serving_models(tmp_path, exact_llama, flags=("--n-ctx", "512")) as server:
            front = psutil.Process(server.process.pid)
            processes = [front, *front.children(recursive=True)]
            assert len(processes) > 1
            limits = {resource.prlimit(each.pid, resource.RLIMIT_CORE) for each in processes}
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, (before, most))
    assert limits == {(0, most)}
