"""ps: where the parts of models that are on several devices are."""

from __future__ import annotations

from typing import Any

import pytest

from jan_serve.cli.commands.models.ps import note_placement
from jan_serve.cli.output import Output


def noted(capsys: pytest.CaptureFixture[str], placement: Any) -> list[str]:
    note_placement(Output(), {"id": "m", "placement": placement})
    return capsys.readouterr().err.splitlines()


def test_a_line_for_each_device_and_each_advice(capsys: pytest.CaptureFixture[str]) -> None:
    parts = [{"text": "main memory: experts"}, {"text": "CUDA0: blocks"}]
    found = noted(capsys, {"parts": parts, "advice": ["More memory."]})
    assert found == ["m:", "  main memory: experts", "  CUDA0: blocks", "  More memory."]


@pytest.mark.parametrize("placement", [None, {"parts": [{"text": "main memory: all"}], "advice": []}])
def test_a_model_on_one_device_is_in_the_table_already(
    capsys: pytest.CaptureFixture[str], placement: Any
) -> None:
    assert noted(capsys, placement) == []
