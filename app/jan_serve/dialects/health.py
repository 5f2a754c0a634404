"""The state of the server, of which dialects and routes tell: from the front's own state, without asking an engine."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Literal

import msgspec
from pydantic import BaseModel

from jan_serve import __version__
from jan_serve.core.measurements import SelfCheck
from jan_serve.dialects.ports import ControlPlane, ServedModels
from jan_serve.http.lifecycle import Lifecycle


class ModelHealth(BaseModel):
    """A model that was requested since the start. lost_devices: accelerators lost since an earlier load."""

    name: str
    state: str
    lost_devices: list[str]


class SelfCheckHealth(BaseModel):
    """The newest run of `jan-serve selfcheck` when the server started. at: seconds since 1970. findings: what is worse
    than with the version that it was compared with.
    """

    version: str
    compared_with: str | None
    at: float
    findings: list[str]


class Health(BaseModel):
    """The state of the server. busy: requests are running. degraded: a model failed, or runs without an accelerator
    that was lost. asleep: requests are rejected until it is woken. uptime_s: seconds.
    """

    status: Literal["ok", "draining"]
    state: Literal["ready", "busy", "degraded", "asleep", "draining"]
    version: str
    pid: int
    uptime_s: float
    open_requests: int
    models: list[ModelHealth]
    selfcheck: SelfCheckHealth | None = None


def health_of(
    models: ServedModels,
    lifecycle: Lifecycle,
    control: ControlPlane | None = None,
    self_check: SelfCheck | None = None,
) -> Callable[[], Health]:
    """A function that returns the current state. control: None if the server cannot sleep. self_check: the newest."""
    checked = None if self_check is None else SelfCheckHealth(**msgspec.to_builtins(self_check))

    def current() -> Health:
        states = models.snapshot().models
        state = "busy" if lifecycle.open_requests else "ready"
        if any(model.state == "failed" or model.lost_devices for model in states):
            state = "degraded"
        if control is not None and control.is_sleeping:
            state = "asleep"
        return Health(
            status="draining" if lifecycle.draining else "ok",
            state="draining" if lifecycle.draining else state,
            version=__version__,
            pid=os.getpid(),
            uptime_s=round(lifecycle.uptime_s, 3),
            open_requests=lifecycle.open_requests,
            models=[
                ModelHealth(name=model.name, state=model.state, lost_devices=list(model.lost_devices))
                for model in states
            ],
            selfcheck=checked,
        )

    return current
