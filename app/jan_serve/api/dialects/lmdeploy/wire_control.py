"""Wire types of LMDeploy's control plane. They never leave this folder."""

from __future__ import annotations

from typing import Any

from typing_extensions import TypedDict

from jan_serve.api.wire_types import Int, WireModel


class AbortRequest(WireModel):
    """The session to end, or all. The last two are read and change nothing, as in LMDeploy."""

    session_id: Int | None = -1
    abort_all: bool = False
    abort_message: str | None = None
    finished_reason: dict[str, Any] | None = None


class SleepState(TypedDict):
    """Whether requests are refused because the server sleeps."""

    is_sleeping: bool
