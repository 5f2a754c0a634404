"""Where LM Studio's routes are, and what a proxy knows of them. Errors are OpenAI's, as elsewhere in its API."""

from __future__ import annotations

from typing import Final

from jan_serve.dialects.outline import ModelList, Outline
from jan_serve.dialects.shared.default_error_body import render_error

PREFIX: Final = "/api/v0"

OUTLINE: Final = Outline(
    (PREFIX,),
    errors={PREFIX: render_error},
    lists=(
        ModelList(
            f"{PREFIX}/models",
            "data",
            "id",
            lambda rows, _: {"object": "list", "data": rows},
            lambda row: row.get("state") == "loaded",
            is_momentary=True,
            names=lambda name: (name,),
        ),
    ),
)
