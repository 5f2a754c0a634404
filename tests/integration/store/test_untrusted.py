"""Hostile hubs, redirects and names."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from jan_serve.errors import HubAccessDenied, HubError, HubNotFound, InvalidRequest, Offline
from jan_serve.store.hub.hub_http import HubAccess, HubHttp
from jan_serve.store.hub.pull import Puller
from jan_serve.store.resolve import ModelResolver
from tests.integration.store.conftest import FILE, QUICK, REPO, Bench, model_bytes
from tests.support.fake_hub import FakeRepo, Fault, running_hub

pytestmark = pytest.mark.anyio

CANARY = "hf_canary-0123456789"
HOSTILE = (
    "../../x", "..%2fx", "..\\x", "/etc/passwd", "C:\\x", "a/../../b", "a/b/../c.gguf", "a/b\0c", "a/" + "b" * 300,
    "org/CON", "org/name.", "org/.name", "org/na me", "org/x:../y", "org/x:", "-org/x", "org/..", "./x", "org//x",
    "org/x/a.gguf:b", "https://127.0.0.1:1/org/x", "http://huggingface.co@evil.example/org/x", "file:///etc/passwd",
    "", "\ud800/x", "org/x/resolve/../../y.gguf",
)  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
async def test_hostile_names_are_refused_before_anything_is_asked(bench: Bench, name: str) -> None:
    with pytest.raises((InvalidRequest, HubNotFound)) as caught:
        await bench.pull(name)
    caught.value.message.encode("utf-8")
    assert caught.value.message.isprintable()
    assert bench.hub.requests == []
    assert not bench.models.exists()


@pytest.mark.parametrize("revision", ["../main", "a b", "-x", "a\0", "x" * 300, "refs/../x", ""])
async def test_hostile_revisions(bench: Bench, revision: str) -> None:
    with pytest.raises(InvalidRequest, match="revision"):
        await bench.puller().plan(REPO, revision=revision)
    assert bench.hub.requests == []


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


async def test_the_token_goes_to_the_hub_and_nowhere_else(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with running_hub() as other:
        other.repos[REPO] = bench.hub.repos[REPO]
        path = f"/{REPO}/resolve/{bench.hub.repos[REPO].commit}/{FILE}"
        bench.hub.file_faults.append(Fault(location=other.name_url + path))
        await bench.pull(puller=bench.puller(CANARY))
        assert bench.file().read_bytes() == bench.content()
        assert [asked.headers.get("authorization") for asked in bench.hub.requests] == [
            f"Bearer {CANARY}"
        ] * 2
        (elsewhere,) = other.requests
        assert "authorization" not in elsewhere.headers
        assert CANARY not in str(elsewhere.headers)
    assert CANARY not in caplog.text
    assert CANARY not in repr(HubAccess(bench.hub.url, CANARY))


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("http://169.254.169.254/latest/meta-data", "private address"),
        ("http://10.0.0.1/x", "private address"),
        ("http://[fd00::1]/x", "private address"),
        ("http://0.0.0.0:1/x", "private address"),
        ("file:///etc/passwd", "plain http"),
        ("ftp://example.com/x", "plain http"),
        ("http://user:password@127.0.0.1/x", "plain http"),
    ],
)
async def test_redirects_out_of_bounds_are_refused(bench: Bench, location: str, reason: str) -> None:
    bench.hub.file_faults.append(Fault(location=location))
    with pytest.raises(HubError, match=reason):
        await bench.pull()
    assert bench.incoming() == []


async def test_a_redirect_to_this_machine_is_refused_for_a_hub_elsewhere(bench: Bench) -> None:
    """The connected peer decides, not the name: `localhost` here stands for any name that leads to a private place."""
    async with HubHttp(HubAccess("http://hub.example"), QUICK) as http:
        with pytest.raises(HubError, match=r"redirects to (127\.0\.0\.1|::1), a private address"):
            async with http.stream(bench.hub.name_url + "/x"):
                pass
    assert bench.hub.requests == []


async def test_a_redirect_loop_ends(bench: Bench) -> None:
    bench.hub.file_faults.extend([Fault(location=bench.hub.url + "/again/a/resolve/main/x.gguf")] * 20)
    with pytest.raises(HubError, match="more than 5 times"):
        await bench.pull()


@pytest.mark.parametrize(
    ("endpoint", "url", "sent"),
    [
        ("https://hub.example", "https://hub.example/x", True),
        ("https://hub.example", "https://hub.example:443/x", True),
        ("https://hub.example", "http://hub.example/x", False),
        ("https://hub.example", "https://hub.example:8443/x", False),
        ("https://hub.example", "https://cdn.hub.example/x", False),
        ("http://hub.example", "http://hub.example/x", False),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080/x", True),
        ("http://127.0.0.1:8080", "http://localhost:8080/x", False),
    ],
)
async def test_where_the_token_may_go(endpoint: str, url: str, sent: bool) -> None:
    import httpx2

    async with HubHttp(HubAccess(endpoint, CANARY)) as http:
        assert bool(http._authorization(httpx2.URL(url))) is sent  # pyright: ignore[reportPrivateUsage]
        assert http.token_withheld is (endpoint == "http://hub.example")


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


async def test_a_file_that_vanished_since_the_list(bench: Bench) -> None:
    plan = await bench.puller().plan(REPO)
    bench.hub.repos[REPO].files.clear()
    with pytest.raises(HubNotFound):
        await bench.puller().run(plan, bench.seen)
    assert bench.incoming() == []


async def test_without_a_network_models_are_listed_and_pull_is_offline(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.pull()
    import socket

    def no_network(*_: object, **__: object) -> object:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", no_network)
    assert [entry.name for entry in ModelResolver(bench.models).entries()] == [f"{REPO}/Tiny-Q8_0"]
    with pytest.raises(Offline, match="Temporary failure in name resolution"):
        await Puller(bench.models, HubAccess("https://hub.example")).plan("org/x")


@pytest.mark.skipif(os.name != "posix", reason="needs symbolic links")
async def test_a_link_in_the_place_of_the_model_is_replaced_not_written_through(
    bench: Bench, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"precious")
    bench.file().parent.mkdir(parents=True)
    bench.file().symlink_to(outside)
    await bench.pull()
    assert outside.read_bytes() == b"precious"
    assert not bench.file().is_symlink()
