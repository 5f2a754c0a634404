"""What the OpenAPI document says of `POST /generate` at the root: both protocols that answer there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from jan_serve.api.routes.generate_dispatch import LMDEPLOY_PATH, SHARED_PATH

_Object = dict[str, Any]


def with_both_protocols(document_of: Callable[[], _Object]) -> Callable[[], _Object]:
    """A way to get the document, as FastAPI keeps it, whose shared route has the bodies and answers of both."""

    def document() -> _Object:
        found = document_of()
        paths: _Object = found["paths"]
        shared, other = (paths.get(path, {}).get("post") for path in (SHARED_PATH, LMDEPLOY_PATH))
        if shared is None or other is None or set(other["tags"]) <= set(shared["tags"]):
            return found  # one protocol only, or done already
        paths[SHARED_PATH]["post"] = _both(shared, other)
        return found

    return document


def _both(shared: _Object, other: _Object) -> _Object:
    statuses = [
        *shared["responses"],
        *(status for status in other["responses"] if status not in shared["responses"]),
    ]
    return {
        **shared,
        "tags": [*shared["tags"], *other["tags"]],
        "description": "With `inputs` this is Text Generation Inference's route: "
        f"{shared['description']} With `prompt` or `input_ids` it is LMDeploy's: {other['description']}",
        "requestBody": {
            **shared["requestBody"],
            "content": _contents((shared["requestBody"], other["requestBody"])),
        },
        "responses": {
            status: _response(
                [each["responses"][status] for each in (shared, other) if status in each["responses"]]
            )
            for status in sorted(statuses)
        },
    }


def _response(answers: list[_Object]) -> _Object:
    texts = dict.fromkeys(answer["description"] for answer in answers)
    contents = _contents(answers)
    return {"description": "; ".join(texts), **({"content": contents} if contents else {})}


def _contents(holders: Iterable[_Object]) -> _Object:
    """By media type. Where both have one, either schema fits; without a schema anything does."""
    found: _Object = {}
    for holder in holders:
        for kind, media in holder.get("content", {}).items():
            if kind in found:
                schemas = [each["schema"] for each in (found[kind], media) if "schema" in each]
                found[kind] = {"schema": {"anyOf": schemas}} if len(schemas) == 2 else {}
            else:
                found[kind] = media
    return found
