"""A server whose lent device goes away: that model fails clearly and is loaded elsewhere, and others stay."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.integration.rpc.lending import lending
from tests.support.clients.raw_http import connect, get, post_bytes
from tests.support.processes import wait_until
from tests.support.servers.served import serving

pytestmark = pytest.mark.integration
MIB = 1 << 20


def test_a_lost_device_costs_its_model_only(dense: Path, tmp_path: Path) -> None:
    models = tmp_path / "models"
    models.mkdir()
    shutil.copy(dense, models / "lent.gguf")
    shutil.copy(dense, models / "here.gguf")
    (tmp_path / "config.toml").write_text(
        'data_dir = "data"\nmodels_dir = "models"\nn_ctx = 512\n'
        '[models."lent"]\nn_gpu_layers = "all"\n[models."here"]\ndevice = "cpu"\n',
        encoding="utf-8",
    )
    with lending(64 * MIB) as lender, serving(tmp_path, "--port", "0", "--rpc", lender.endpoint) as server:
        url = server.url(180)

        def complete(model: str) -> tuple[int, str]:
            body = {"model": model, "prompt": "once upon a time", "max_tokens": 8, "temperature": 0}
            with connect(url, timeout_s=120) as connection:
                connection.send(post_bytes(url, "/v1/completions", body))
                answer = connection.response()
            return answer.status, answer.body.decode()

        assert complete("here")[0] == 200
        status, lent = complete("lent")
        assert status == 200, lent
        (model,) = [each for each in get(url, "/models").json()["data"] if each["id"] == "lent"]
        assert model["device"] == "RPC0"
        assert [part["kind"] for part in model["placement"]["parts"]] == ["cpu", "rpc"]
        wait_until(lambda: "RPC0: blocks 0 to 7" in server.log)

        lender.kill()
        # The request goes on in a worker without the device.
        status, text = complete("lent")
        assert status == 200, text
        assert complete("here")[0] == 200
        (model,) = [each for each in get(url, "/models").json()["data"] if each["id"] == "lent"]
        assert model["device"] == "CPU"
        health = get(url, "/health").json()
        lost = {each["name"]: each["lost_devices"] for each in health["models"]}
        assert lost["lent"] == [lender.endpoint]
        assert "Traceback" not in server.log
