"""The control plane of one server: what its routes may do with the parts that wiring put together."""

from __future__ import annotations

from jan_serve.config import Settings
from jan_serve.supervisor.migration.links import Migrations


class ServerControl:
    """api.control_port.ControlPlane over a model manager."""

    def __init__(self, settings: Settings) -> None:
        self.links = Migrations(settings.host)

    async def close(self) -> None:
        """End the links with other servers. Called once the server has stopped."""
        await self.links.close()
