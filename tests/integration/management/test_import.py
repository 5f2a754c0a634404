"""Models of other programs are listed and imported over HTTP."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.servers.managed import managed_app
from tests.unit.store.imports.support import DIGEST, MODEL, ollama_model, write

pytestmark = pytest.mark.anyio
OLLAMA = "ollama/small-latest"
DAMAGED = "someone/damaged/damaged-Q4_K_M"


def other_programs(folder: Path) -> dict[str, tuple[Path, ...]]:
    """Ollama with a model and the manifest of a lost one, LM Studio with a damaged file."""
    ollama, lmstudio = folder / "ollama", folder / "lmstudio"
    write(ollama / "blobs" / f"sha256-{DIGEST}", MODEL)
    for name, digest in (("small", DIGEST), ("lost", "0" * 64)):
        ollama_model(ollama, f"registry.ollama.ai/library/{name}/latest", ("model", f"sha256:{digest}"))
    write(lmstudio / f"{DAMAGED}.gguf", b"GGUF, it says")
    return {"ollama": (ollama, folder / "missing"), "lmstudio": (lmstudio,)}


async def test_a_model_of_another_program_is_imported_once(tmp_path: Path) -> None:
    async with managed_app(tmp_path / "models", other_programs=other_programs(tmp_path)) as managed:
        listed = (await managed.client.get("/models/import")).json()["data"]
        assert {row["id"]: (row["program"], row["state"], row["reason"]) for row in listed} == {
            OLLAMA: ("Ollama", "new", None),
            "ollama/lost-latest": ("Ollama", "unusable", f"sha256-{'0' * 64} is missing"),
            DAMAGED: ("LM Studio", "new", None),
        }
        assert next(row["size_bytes"] for row in listed if row["id"] == OLLAMA) == len(MODEL)
        done = await managed.client.post("/models/import", json={"model": OLLAMA})
        assert done.json() == {"success": True, "model": OLLAMA}
        listed = (await managed.client.get("/models/import")).json()["data"]
        assert next(row["state"] for row in listed if row["id"] == OLLAMA) == "already here"
        models = (await managed.client.get("/models")).json()["data"]
        assert [(row["id"], row["source"]) for row in models if row["source"] != "built in"] == [
            (OLLAMA, "ollama")
        ]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nothing", "no other program has it"),
        ("../../etc/passwd", "no other program has it"),
        ("ollama/lost-latest", "is missing"),
        (DAMAGED, "GGUF"),
    ],
)
async def test_what_cannot_be_imported_leaves_nothing(tmp_path: Path, name: str, words: str) -> None:
    async with managed_app(tmp_path / "models", other_programs=other_programs(tmp_path)) as managed:
        refused = await managed.client.post("/models/import", json={"model": name})
        assert 400 <= refused.status_code < 500
        assert words in refused.json()["error"]["message"]
        assert list((tmp_path / "models").rglob("*.gguf")) == []
