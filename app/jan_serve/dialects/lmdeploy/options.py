"""Settings of LMDeploy's API."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from jan_serve.config.flags import Flag

_PANEL: Final = "LMDeploy"


class LmdeployOptions(BaseModel):
    """What clients may do to the server and to each other."""

    model_config = ConfigDict(defer_build=True)

    enable_abort_handling: Annotated[
        bool,
        Field(description="Let clients abort each other's requests (`/abort_request`)."),
        Flag(_PANEL),
    ] = False
    allow_terminate_by_client: Annotated[
        bool, Field(description="Let clients stop the server (`/terminate`)."), Flag(_PANEL)
    ] = False
