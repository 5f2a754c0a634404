"""Wire types of LMDeploy's control plane."""

from __future__ import annotations

from typing import Annotated, Any

from typing_extensions import TypedDict

from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.wire_types import AtMost, FirstError, Int, LaxModel


class AbortRequest(LaxModel):
    """The session to abort, or all. `abort_message` and `finished_reason` have no effect, as in LMDeploy."""

    session_id: Int | None = -1
    abort_all: bool = False
    abort_message: str | None = None
    finished_reason: dict[str, Any] | None = None


class SleepState(TypedDict):
    is_sleeping: bool


class UpdateWeightsRequest(LaxModel):
    """Part of new weights; `finished` marks the last part.

    serialized_named_tensors: base64 of a GGUF file with the tensors, or a list of such texts. load_format must be
    "gguf": LMDeploy's own formats are pickles, which are rejected. model: absent is the default model.
    """

    serialized_named_tensors: (
        str
        | Annotated[list[str], FirstError(), AtMost(limits.MAX_EMBEDDING_INPUTS, "serialized_named_tensors")]
        | dict[str, Any]
    )
    load_format: str | None = None
    finished: bool = False
    model: str | None = None
