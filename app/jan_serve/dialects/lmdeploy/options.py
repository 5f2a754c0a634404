from __future__ import annotations

from typing import Final

from pydantic import BaseModel, ConfigDict

from jan_serve.config.fields import setting

_PANEL: Final = "LMDeploy"


class LmdeployOptions(BaseModel):
    """What clients may do to the server and to each other."""

    model_config = ConfigDict(defer_build=True)

    enable_abort_handling: bool = setting(
        False, _PANEL, "Let clients abort each other's requests (`/abort_request`)."
    )
    allow_terminate_by_client: bool = setting(False, _PANEL, "Let clients stop the server (`/terminate`).")
