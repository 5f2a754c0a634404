"""Settings of a server that joins a proxy."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator

from jan_serve.config.flags import Flag
from jan_serve.config.value_types import check_url

FLEET_PANEL: Final = "Many machines"


class FleetOptions(BaseModel):
    """The proxy, and what the server is there. Part of Settings."""

    model_config = ConfigDict(defer_build=True)

    proxy_url: Annotated[
        str | None,
        Field(
            description="Proxy (`jan-serve proxy`, or LMDeploy's) to join: the server registers there when it listens,"
            " renews that every half minute, and leaves when it drains."
        ),
        Flag(FLEET_PANEL, metavar="URL"),
    ] = None
    proxy_key: Annotated[
        SecretStr | None,
        Field(
            description="Management key of the proxy. Default: the first --api-key, which the proxy has as --node-key."
        ),
        Flag(FLEET_PANEL, metavar="KEY"),
    ] = None
    advertise_url: Annotated[
        str | None,
        Field(
            description="Address under which the proxy reaches this server. Default: the listening address, or the one"
            " from which this machine reaches the proxy."
        ),
        Flag(FLEET_PANEL, metavar="URL"),
    ] = None
    role: Annotated[
        Literal["hybrid", "prefill", "decode"],
        Field(description="What a proxy with `--serving-strategy DistServe` uses this server for."),
        Flag(FLEET_PANEL),
    ] = "hybrid"
    speed: Annotated[
        float | None,
        Field(gt=0, le=1e9, description="Speed relative to the other nodes, for the proxy's first guesses."),
        Flag(FLEET_PANEL, metavar="NUMBER"),
    ] = None

    @field_validator("proxy_url", "advertise_url")
    @classmethod
    def _check_node_url(cls, url: str | None) -> str | None:
        return None if url is None else check_url(url, "http://192.168.1.5:8000")
