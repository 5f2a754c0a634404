"""Settings of a server that joins a proxy."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator

from jan_serve.config.flags import setting
from jan_serve.config.value_types import check_url

FLEET_PANEL: Final = "Many machines"


class FleetOptions(BaseModel):
    """The proxy, and what the server is there. Part of Settings."""

    model_config = ConfigDict(defer_build=True)

    proxy_url: str | None = setting(
        None,
        FLEET_PANEL,
        "Proxy (`jan-serve proxy`, or LMDeploy's) to join: the server registers there when it listens,"
        " renews that every half minute, and leaves when it drains.",
        metavar="URL",
    )
    proxy_key: SecretStr | None = setting(
        None,
        FLEET_PANEL,
        "Management key of the proxy. Default: the first --api-key, which the proxy has as --node-key.",
        metavar="KEY",
    )
    advertise_url: str | None = setting(
        None,
        FLEET_PANEL,
        "Address under which the proxy reaches this server. Default: the listening address, or the one"
        " from which this machine reaches the proxy.",
        metavar="URL",
    )
    role: Literal["hybrid", "prefill", "decode"] = setting(
        "hybrid", FLEET_PANEL, "What a proxy with `--serving-strategy DistServe` uses this server for."
    )
    speed: Annotated[float | None, Field(gt=0, le=1e9)] = setting(
        None,
        FLEET_PANEL,
        "Speed relative to the other nodes, for the proxy's first guesses.",
        metavar="NUMBER",
    )

    @field_validator("proxy_url", "advertise_url")
    @classmethod
    def _check_node_url(cls, url: str | None) -> str | None:
        return None if url is None else check_url(url, "http://192.168.1.5:8000")
