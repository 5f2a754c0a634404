from __future__ import annotations

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from jan_serve.config.fields import setting

_PANEL: Final = "OpenAI"


class OpenAIOptions(BaseModel):
    """What the server keeps for later requests."""

    model_config = ConfigDict(defer_build=True)

    response_store_bytes: Annotated[int, Field(ge=0, le=1 << 40)] = setting(
        64 * 1024 * 1024,
        _PANEL,
        "Memory for responses of `/v1/responses` that `previous_response_id` can continue; the least"
        " recently used are dropped first. 0 keeps none.",
    )
    resume_s: Annotated[float, Field(ge=0, le=86_400)] = setting(
        60.0,
        _PANEL,
        "How long a client can take up the stream of a chat again after its line broke: the same request with"
        " `Last-Event-ID`. 0: events have no `id`, as where several people share a key.",
    )
