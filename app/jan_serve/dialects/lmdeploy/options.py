from __future__ import annotations

from functools import partial
from typing import Final

from pydantic import BaseModel, ConfigDict

from jan_serve.config.fields import setting

_setting: Final = partial(setting, "LMDeploy")


class LmdeployOptions(BaseModel):
    """What clients may do to the server and to each other."""

    model_config = ConfigDict(defer_build=True)

    enable_abort_handling: bool = _setting(
        False, "Let clients abort each other's requests (`/abort_request`)."
    )
    allow_terminate_by_client: bool = _setting(False, "Let clients stop the server (`/terminate`).")
