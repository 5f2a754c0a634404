"""`POST /generate` at the root, which two protocols share:

dispatch by the members of the body, and both in the OpenAPI document.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from jan_serve.dialects.outline import members_reader

SHARED_PATH: Final = "/generate"
LMDEPLOY_PATH: Final = "/lmdeploy/generate"
_members: Final = members_reader("inputs", "prompt", "input_ids", "parameters")


def is_lmdeploy_body(body: bytes) -> bool:
    """Whether a body is LMDeploy's. False for anything but a JSON object."""
    found = _members(body)
    if found is None or "inputs" in found:
        return False
    return bool(found & {"prompt", "input_ids"}) or "parameters" not in found


_Object = dict[str, Any]


def show_both_protocols(document: _Object) -> None:
    """Merge the bodies and responses of both into the shared route, if both are served."""
    paths: _Object = document["paths"]
    shared, other = (paths.get(path, {}).get("post") for path in (SHARED_PATH, LMDEPLOY_PATH))
    if shared is not None and other is not None:
        paths[SHARED_PATH]["post"] = _both(shared, other)


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
    """Contents by media type. If both have one, either schema fits; without a schema, anything does."""
    contents: _Object = {}
    for holder in holders:
        for kind, media in holder.get("content", {}).items():
            if kind in contents:
                schemas = [each["schema"] for each in (contents[kind], media) if "schema" in each]
                contents[kind] = {"schema": {"anyOf": schemas}} if len(schemas) == 2 else {}
            else:
                contents[kind] = media
    return contents
