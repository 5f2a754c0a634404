from __future__ import annotations

from functools import partial
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from jan_serve.config.fields import setting

_setting: Final = partial(setting, "OpenAI")


class OpenAIOptions(BaseModel):
    """What the server keeps for later requests."""

    model_config = ConfigDict(defer_build=True)

    response_store_bytes: Annotated[int, Field(ge=0, le=1 << 40)] = _setting(
        64 * 1024 * 1024,
        "Memory for responses of `/v1/responses` that `previous_response_id` can continue; the least"
        " recently used are dropped first. 0 keeps none.",
    )
    resume_s: Annotated[float, Field(ge=0, le=86_400)] = _setting(
        60.0,
        "How long a client can take up the stream of a chat again after its line broke: the same request with"
        " `Last-Event-ID`. 0: events have no `id`, as where several people share a key.",
    )
