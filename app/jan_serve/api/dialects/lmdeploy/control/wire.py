"""Wire types of LMDeploy's control plane. They never leave this folder."""

from __future__ import annotations

from typing import Annotated, Any

from typing_extensions import TypedDict

from jan_serve.api.dialects.lmdeploy import limits
from jan_serve.api.shared.wire_types import AtMost, FirstError, Int, WireModel


class AbortRequest(WireModel):
    """The session to end, or all. The last two are read and change nothing, as in LMDeploy."""

    session_id: Int | None = -1
    abort_all: bool = False
    abort_message: str | None = None
    finished_reason: dict[str, Any] | None = None


class SleepState(TypedDict):
    """Whether requests are refused because the server sleeps."""

    is_sleeping: bool


class UpdateWeightsRequest(WireModel):
    """Part of new weights, or the last one of them.

    serialized_named_tensors: base64 of a GGUF file that holds the tensors, or a list of such texts. load_format has to
    be "gguf": LMDeploy's own forms are pickles, which are refused. model: the default model where it is absent.
    """

    serialized_named_tensors: (
        str
        | Annotated[list[str], FirstError(), AtMost(limits.MAX_INPUTS, "serialized_named_tensors")]
        | dict[str, Any]
    )
    load_format: str | None = None
    finished: bool = False
    model: str | None = None
