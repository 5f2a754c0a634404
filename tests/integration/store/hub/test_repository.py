"""What the hub lists is not trusted; its refusals are explained."""

from __future__ import annotations

from pathlib import Path

import pytest

from jan_serve.errors import HubAccessDenied, HubError, HubNotFound, InvalidRequest
from tests.integration.store.conftest import FILE, REPO, Bench, model_bytes
from tests.support.servers.fake_hub import FakeRepo, Fault

pytestmark = pytest.mark.anyio

CANARY = "hf_canary-0123456789"


@pytest.mark.parametrize(
    "path",
    ["../x.gguf", "/etc/x.gguf", "a/../../x.gguf", "..\\x.gguf", "C:\\x.gguf", ".hidden.gguf", "aux.gguf"],
)
async def test_a_list_with_names_that_leave_the_folder(bench: Bench, path: str, tmp_path: Path) -> None:
    bench.hub.repos[REPO].files[path] = model_bytes(1000)
    before = sorted(tmp_path.rglob("*"))
    record = await bench.pull(REPO)
    assert record.name == f"{REPO}/Tiny-Q8_0"
    inside = [p for p in tmp_path.rglob("*") if p.is_relative_to(bench.models)]
    assert sorted([*before, *inside]) == sorted(tmp_path.rglob("*"))
    with pytest.raises((InvalidRequest, HubNotFound)):
        await bench.pull(f"{REPO}/{path}")


@pytest.mark.parametrize("digest", ["sha256:../../x", "", "A" * 64, "0" * 63, "../" + "0" * 61])
async def test_digests_that_are_none(bench: Bench, digest: str) -> None:
    bench.hub.repos[REPO].digests[FILE] = digest
    with pytest.raises(HubError, match="digest"):
        await bench.pull()
    assert not bench.models.exists()


async def test_only_gguf_files_are_ever_asked_for(bench: Bench) -> None:
    bench.hub.repos[REPO].files |= {"pytorch_model.bin": b"\x80\x04.", "modeling_x.py": b"import os"}
    await bench.pull()
    assert {asked.path.rpartition(".")[2] for asked in bench.hub.asked("/resolve/")} == {"gguf"}
    bench.hub.repos["org/Torch"] = FakeRepo({"pytorch_model.bin": b"\x80\x04.", "model.safetensors": b"{}"})
    with pytest.raises(HubNotFound, match="no GGUF file"):
        await bench.pull("org/Torch")
    with pytest.raises(HubNotFound):
        await bench.pull(f"{REPO}/pytorch_model.bin")


async def test_gated_private_missing_and_wrong(bench: Bench) -> None:
    bench.hub.repos["org/Gated"] = FakeRepo({FILE: model_bytes(1000)}, gated=True, token=CANARY)
    bench.hub.repos["org/Private"] = FakeRepo({FILE: model_bytes(1000)}, token=CANARY)
    with pytest.raises(
        HubAccessDenied, match=r"gated: accept its conditions at .*/org/Gated, then set HF_TOKEN"
    ):
        await bench.pull("org/Gated")
    with pytest.raises(HubNotFound, match="If it is private, set HF_TOKEN"):
        await bench.pull("org/Private")
    with pytest.raises(HubNotFound, match="There is no repository org/None"):
        await bench.pull("org/None")
    with pytest.raises(HubNotFound, match="no revision v9"):
        await bench.puller().plan(REPO, revision="v9")
    with pytest.raises(HubNotFound, match=r"has no Q2_K\. It has: Q8_0"):
        await bench.pull(f"{REPO}:Q2_K")
    await bench.pull("org/Gated", puller=bench.puller(CANARY))
    bench.hub.listing_faults.append(
        Fault(status=401, headers={"X-Error-Message": "Invalid credentials in Authorization header"})
    )
    with pytest.raises(HubAccessDenied, match="refuses org/Gated with this token"):
        await bench.pull("org/Gated", puller=bench.puller("wrong"))


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"<html>", b'{"sha": 1}', b'{"sha": "main", "siblings": []}', b"[" * 9999]
)
async def test_a_list_that_is_none_is_refused(bench: Bench, body: bytes) -> None:
    bench.hub.listing_faults.append(Fault(body=body))
    with pytest.raises(HubError):
        await bench.pull()
