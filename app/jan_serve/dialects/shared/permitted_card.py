"""A model in a list of models, with the permissions that OpenAI's lists once had: LMDeploy's servers and proxy do."""

from __future__ import annotations

import uuid
from typing import Any, Final

_ID_DIGITS: Final = 22


def permitted_card(name: str, created: int) -> dict[str, Any]:
    permission = {
        "id": f"modelperm-{uuid.uuid5(uuid.NAMESPACE_OID, name).hex[:_ID_DIGITS]}",
        "object": "model_permission",
        "created": created,
        "allow_create_engine": False,
        "allow_sampling": True,
        "allow_logprobs": True,
        "allow_search_indices": True,
        "allow_view": True,
        "allow_fine_tuning": False,
        "organization": "*",
        "group": None,
        "is_blocking": False,
    }
    return {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": "lmdeploy",
        "root": name,
        "parent": None,
        "permission": [permission],
    }
