"""show: what the header, the record and the names of a model say."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from jan_serve.core.models import HeaderFacts
from jan_serve.resources import builtin_model
from jan_serve.store.index import FileRecord, ModelIndex, ModelRecord, Source
from tests.unit.cli.conftest import Run
from tests.unit.store.gguf_builder import GgufBytes, Tensor, string_key, uint_key

TEMPLATE = "{% for m in messages %}\x1b[31m{{ m.content }}{% endfor %}"
CONTENT = GgufBytes(
    keys=[uint_key("llama.context_length", 2048), string_key("tokenizer.chat_template", TEMPLATE)]
).build()


@pytest.fixture
def model(own_folders: Path) -> Path:
    path = own_folders / "m-Q4_K_M.gguf"
    path.write_bytes(CONTENT)
    return path


def record(model: Path, digest: str | None) -> None:
    """Write the record of a download, with this digest of its file."""
    ModelIndex(model.parent).put(
        ModelRecord(
            name="m-Q4_K_M",
            source=Source(kind="hub", name="org/m", revision="abc"),
            files=(FileRecord(path=model.name, size_bytes=len(CONTENT), sha256=digest),),
            modified_ns=model.stat().st_mtime_ns,
            added_at=0,
            facts=HeaderFacts(architecture="llama"),
        )
    )


def shown(run: Run, *words: str) -> dict[str, Any]:
    answer = run("show", "m-Q4_K_M", "--json", *words)
    assert answer.status == 0, answer.err
    return json.loads(answer.out)


def test_a_file_without_a_record(run: Run, model: Path) -> None:
    facts = shown(run)
    assert (facts["architecture"], facts["n_ctx_train"], facts["quantisation"]) == ("llama", 2048, "Q4_K_M")
    assert (facts["size_bytes"], facts["chat_template"]) == (len(CONTENT), True)
    assert (facts["files"], facts["links_to"]) == ([str(model)], None)
    assert (facts["revision"], facts["sha256"], facts["projector"]) == (None, [], None)


def test_a_file_elsewhere_is_named_by_its_path(run: Run, model: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "other" / "there.gguf"
    elsewhere.parent.mkdir()
    elsewhere.write_bytes(model.read_bytes())
    answer = run("show", str(elsewhere), "--json")
    assert answer.status == 0, answer.err
    assert json.loads(answer.out)["files"] == [str(elsewhere)]
    assert run("show", str(tmp_path / "none.gguf")).status != 0


def test_a_row_for_what_is_known(run: Run, model: Path) -> None:
    answer = run("show", "m-Q4_K_M")
    rows = [" ".join(line.split()) for line in answer.out.splitlines()]
    for row in ("context 2048", "chat template yes", "parameters 64", f"size {len(CONTENT)} B"):
        assert row in rows
    assert not {"revision", "sha256", "links", "aliases"} & {row.partition(" ")[0] for row in rows}


def test_each_item_of_a_list_is_a_row(run: Run, own_folders: Path) -> None:
    """A model that sees lists its senses."""
    model = builtin_model()
    assert model is not None
    for name in (model.name, f"mmproj-{model.name}"):
        shutil.copy(model.with_name(name), own_folders)
    answer = run("show", "jan-tiny")
    rows = [" ".join(line.split()) for line in answer.out.splitlines()]
    senses = rows.index("modalities text")
    assert rows[senses + 1] == "vision"
    assert rows[senses - 1].startswith("projector ") and rows[senses - 1].endswith("mmproj-jan-tiny.gguf")


def test_the_template_alone(run: Run, model: Path) -> None:
    answer = run("show", "m-Q4_K_M", "--template")
    assert (answer.status, answer.out) == (0, TEMPLATE + "\n")


def test_a_model_without_a_template(run: Run, own_folders: Path) -> None:
    (own_folders / "plain.gguf").write_bytes(GgufBytes().build())
    answer = run("show", "plain", "--template")
    assert (answer.status, answer.out, answer.err) == (1, "", "error: plain has no chat template.\n")


@pytest.mark.parametrize(
    ("digest", "status", "verified"),
    [
        (hashlib.sha256(CONTENT).hexdigest(), 0, "yes"),
        ("0" * 64, 1, "no"),
        (None, 0, "unknown: no digest of its files is recorded"),
    ],
)
def test_verify(run: Run, model: Path, digest: str | None, status: int, verified: str) -> None:
    record(model, digest)
    answer = run("show", "m-Q4_K_M", "--verify")
    assert answer.status == status
    assert f"verified {verified}" in [" ".join(line.split()) for line in answer.out.splitlines()]
    assert ("differs from the downloaded one" in answer.err) is (status == 1)


def test_a_recorded_file_that_is_gone_is_not_verified(run: Run, model: Path) -> None:
    record(model, hashlib.sha256(CONTENT).hexdigest())
    changed = GgufBytes(tensors=(Tensor("token_embd.weight"),)).build()
    assert len(changed) != len(CONTENT)
    model.write_bytes(changed)
    answer = run("show", "m-Q4_K_M", "--verify", "--json")
    assert json.loads(answer.out)["verified"] is not True


def test_an_unknown_name(run: Run, own_folders: Path) -> None:
    answer = run("show", "none")
    assert (answer.status, answer.out) == (2, "")
    assert "`none` does not exist" in answer.err


def test_the_fit_names_main_memory_and_its_sizes(run: Run, model: Path) -> None:
    plan = run("show", "m-Q4_K_M", "--fit", "--json")
    assert plan.status == 0, plan.err
    facts = json.loads(plan.out)
    assert (facts["n_gpu_layers"], facts["advice"]) == (0, [])
    (main,) = facts["parts"]
    assert (main["device"], main["output"]) == ("CPU", True)
    assert main["weights"] > 0
    answer = run("show", "m-Q4_K_M", "--fit")
    assert answer.out.startswith("main memory: ")
