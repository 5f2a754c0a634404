"""A hub on loopback, a models folder, and pulls from one into the other."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from jan_serve.store.hub.hub_http import HubAccess
from jan_serve.store.hub.pull import Puller, PullPlan
from jan_serve.store.hub.retries import RetryPolicy
from jan_serve.store.index import ModelRecord
from tests.support.servers.fake_hub import FakeHub, FakeRepo, running_hub
from tests.unit.store.gguf_builder import GgufBytes, Tensor

REPO = "org/Tiny-GGUF"
FILE = "Tiny-Q8_0.gguf"
QUICK = RetryPolicy(connect_s=2, read_s=0.3, answer_s=2, tries=3, backoff_s=0.01, max_wait_s=0.2)


def model_bytes(size: int = 3 << 20, *, fill: int = 7) -> bytes:
    """A valid GGUF file of a bit more than `size` bytes."""
    n_blocks = size // 34
    tensor = Tensor("token_embd.weight", shape=(32 * n_blocks,), data=bytes([fill]) * (34 * n_blocks))
    return GgufBytes(tensors=[tensor, Tensor("blk.0.ffn_up.weight")]).build()


@dataclass
class Seen:
    """A watcher that records."""

    counts: list[int] = field(default_factory=list[int])
    notes: list[str] = field(default_factory=list[str])

    def received(self, n_bytes: int) -> None:
        self.counts.append(n_bytes)

    def note(self, text: str) -> None:
        self.notes.append(text)


class Bench:
    """A hub and a models folder."""

    def __init__(self, hub: FakeHub, models: Path) -> None:
        self.hub = hub
        self.models = models
        self.seen = Seen()

    def puller(self, token: str | None = None, retry_policy: RetryPolicy = QUICK) -> Puller:
        """A new one, as a new process would have."""
        return Puller(self.models, HubAccess(self.hub.url, token), retry_policy=retry_policy)

    async def pull(self, name: str = f"{REPO}:Q8_0", puller: Puller | None = None) -> ModelRecord:
        """Plan and run."""
        puller = puller or self.puller()
        plan: PullPlan = await puller.plan(name)
        return await puller.run(plan, self.seen)

    def file(self, name: str = FILE, repo: str = REPO) -> Path:
        """Where a file of the repository goes."""
        return self.models / repo / name

    def content(self, name: str = FILE, repo: str = REPO) -> bytes:
        """The hub's bytes of that file."""
        return self.hub.repos[repo].files[name]

    def incoming(self, suffix: str = "") -> list[Path]:
        """Incomplete files, without locks."""
        folder = self.models / ".jan-serve" / "incoming"
        return [path for path in folder.glob(f"*{suffix}") if path.suffix != ".lock"]


@pytest.fixture
def hub() -> Generator[FakeHub]:
    """A hub with one repository of one file."""
    with running_hub() as hub:
        hub.repos[REPO] = FakeRepo({FILE: model_bytes(), "README.md": b"# Tiny"})
        yield hub


@pytest.fixture
def bench(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """The hub with an empty models folder. A developer's proxy is not used."""
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    return Bench(hub, tmp_path / "models")
