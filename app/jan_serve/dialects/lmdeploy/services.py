"""What LMDeploy's routes share: the generation service and sessions."""

from __future__ import annotations

from typing import Final

import msgspec

from jan_serve.dialects.control_plane import ControlPlane
from jan_serve.dialects.dialect import Services
from jan_serve.dialects.lmdeploy.sessions import Sessions
from jan_serve.dialects.served_models import ServedModels
from jan_serve.generation.service import GenerationService
from jan_serve.http.sse import StreamSettings

_NO_PINGS: Final = 0.0


class LmdeployServices(msgspec.Struct, frozen=True):
    """Unlike in other dialects, an unknown model is always an error.

    streams: without keep-alive comments, because LMDeploy's client reads every line as JSON. control: None if the
    server has no control plane.
    """

    generation: GenerationService
    models: ServedModels
    sessions: Sessions
    streams: StreamSettings
    control: ControlPlane | None = None


def lmdeploy_services(services: Services) -> LmdeployServices:
    models, running, control = services.models, services.running, services.control
    return LmdeployServices(
        generation=GenerationService(
            models, services.preparer, running, None if control is None else control.links
        ),
        models=models,
        sessions=Sessions(),
        streams=msgspec.structs.replace(services.streams, ping_s=_NO_PINGS),
        control=control,
    )
