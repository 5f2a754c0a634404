"""Where LMDeploy's routes are."""

from __future__ import annotations

from typing import Final

PREFIX: Final = "/lmdeploy"
DEPRECATED_CHAT: Final = "/v1/chat/interactive"
DISTSERVE: Final = "/distserve"
CONTROL_PATHS: Final = (
    "/abort_request",
    "/sleep",
    "/wakeup",
    "/is_sleeping",
    "/terminate",
    "/update_weights",
)
ROOT_PATHS: Final = ("/v1/encode", "/pooling", DEPRECATED_CHAT, DISTSERVE, *CONTROL_PATHS)
