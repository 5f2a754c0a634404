"""The server's implementation of LMDeploy's control routes."""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path

from jan_serve.config import Settings
from jan_serve.control.weight_updater import WeightUpdater
from jan_serve.dialects.lmdeploy.options import LmdeployOptions
from jan_serve.store.gguf.weight_update import WeightUpdate
from jan_serve.store.paths import StorePaths
from jan_serve.supervisor.kv_transfer.peer_links import TcpPeerLinks
from jan_serve.supervisor.models.model_manager import ModelManager
from jan_serve.supervisor.models.sleep_mode import Sleeper
from jan_serve.supervisor.workers.child_process import own_command
from jan_serve.wiring.model_sources import ModelSources
from jan_serve.wiring.parts import manager_limits


class ServerControl:
    """dialects.control_plane.ControlPlane over a model manager."""

    def __init__(self, settings: Settings, manager: ModelManager, sources: ModelSources) -> None:
        """sources: the manager's model sources."""
        caches = StorePaths(settings.data_dir, settings.models_dir).cache_dir
        self.links = TcpPeerLinks(settings.host)
        self._sleeper = Sleeper(manager, lambda: delete_states(caches))
        self._weights = WeightUpdater(
            sources,
            sources.updated,
            manager.load,
            WeightUpdate(settings.data_dir / "updated-weights"),
            own_command("worker"),
            manager_limits(settings).worker,
            may_load=lambda: not self._sleeper.is_sleeping,
        )
        self.sleep, self.wake = self._sleeper.sleep, self._sleeper.wake
        self.update_weights = self._weights.add
        options = settings.part(LmdeployOptions)
        self.may_abort = options.enable_abort_handling
        self.may_terminate = options.allow_terminate_by_client

    @property
    def is_sleeping(self) -> bool:
        return self._sleeper.is_sleeping

    def terminate(self) -> None:
        """Drain and stop, as on SIGTERM."""
        signal.raise_signal(signal.SIGTERM)

    async def close(self) -> None:
        """Close the links with other servers and delete updated weights. Call it after the server has stopped."""
        await self.links.close()
        await self._weights.close()


def delete_states(folder: Path) -> None:
    """Delete the prompt states of workers on disk. Blocks. Files in use by another server may remain."""
    for pattern in ("*/*.state", "*/*.partial"):
        for file in folder.glob(pattern):
            with contextlib.suppress(OSError):
                file.unlink()
