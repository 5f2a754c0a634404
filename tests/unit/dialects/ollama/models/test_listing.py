"""Sizes, digests and times in rows."""

from __future__ import annotations

import pytest

from jan_serve.core.models.listed_model import HeaderFacts, ListedModel
from jan_serve.dialects.ollama.models.listing import (
    digest,
    listed_rows,
    modified_at,
    parameter_size,
)
from jan_serve.dialects.ollama.models.wire import ListedRow
from jan_serve.generation.template_choice import TemplateOverride
from tests.unit.dialects.ollama.test_names import listed


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (8_190_000_000, "8.2B"), (8_000_000_000, "8B"), (70_553_706_496, "70.6B"), (494_032_768, "494.03M"),
        (12_345, "12.35K"), (64, "64"), (0, "0"),
    ],
)  # fmt: skip
def test_parameter_size(count: int, text: str) -> None:
    assert parameter_size(count) == text


def test_a_digest_is_the_files_or_changes_with_it() -> None:
    assert digest(listed("a", sha256="ab" * 32)) == "ab" * 32
    plain = digest(listed("a"))
    assert len(plain) == 64
    assert plain == digest(listed("a"))
    assert (
        len(
            {
                plain,
                digest(listed("b")),
                digest(listed("a", size_bytes=2)),
                digest(listed("a", modified_at=2)),
            }
        )
        == 4
    )


def test_times_are_utc() -> None:
    assert modified_at(listed("a", modified_at=86_400)) == "1970-01-02T00:00:00.000000Z"


def rows_of(*models: ListedModel, override: TemplateOverride | None = None) -> list[ListedRow]:
    return listed_rows(models, lambda _model, name: override if name is None else None)


def test_the_newest_model_is_first_and_broken_files_are_left_out() -> None:
    rows = rows_of(
        listed("old", modified_at=1), listed("broken", problem="damaged"), listed("new", modified_at=2)
    )
    assert [row["name"] for row in rows] == ["new:latest", "old:latest"]


def test_rows_are_made_once_per_change_of_a_model() -> None:
    first, again = rows_of(listed("a"), listed("b")), rows_of(listed("a"), listed("b", size_bytes=9))
    assert again[0] is first[0], "clients ask for the list of a thousand models again and again"
    assert again[1]["size"] == 9


def test_each_name_has_the_capabilities_of_its_template() -> None:
    facts = HeaderFacts(architecture="llama", has_chat_template=True, thinks=True)
    model = listed("a", aliases=("b",), facts=facts)
    own, plain = ["completion", "tools", "thinking"], ["completion", "tools"]
    assert [row.get("capabilities") for row in rows_of(model)] == [own, own]
    override = TemplateOverride("plain", "{{ messages }}")
    assert [row.get("capabilities") for row in rows_of(model, override=override)] == [plain, own]
    assert "capabilities" not in rows_of(listed("c"))[0], "its header is not read yet"
