"""Settings of Text Generation Inference's API: its launcher's limits and its watermark."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from jan_serve.config.flags import Flag

TGI_GROUP: Final = "Text Generation Inference"


class TgiOptions(BaseModel):
    """Limits of TGI requests, which /info shows. Part of Settings. Lengths are tokens."""

    model_config = ConfigDict(defer_build=True)

    tgi_max_concurrent_requests: Annotated[
        int,
        Field(
            ge=1,
            le=100_000,
            description="Maximum number of concurrent generations; further requests get 429.",
        ),
        Flag(TGI_GROUP),
    ] = 128
    tgi_max_best_of: Annotated[int, Field(ge=1, le=64, description="Maximum `best_of`."), Flag(TGI_GROUP)] = 2
    tgi_max_stop_sequences: Annotated[
        int, Field(ge=0, le=64, description="Maximum number of `stop` strings."), Flag(TGI_GROUP)
    ] = 4
    tgi_max_top_n_tokens: Annotated[
        int, Field(ge=0, le=100, description="Maximum `top_n_tokens`."), Flag(TGI_GROUP)
    ] = 5
    tgi_max_client_batch_size: Annotated[
        int, Field(ge=1, le=128, description="Maximum number of prompts in one completion."), Flag(TGI_GROUP)
    ] = 4
    tgi_max_input_tokens: Annotated[
        int | None,
        Field(
            ge=1, description="Maximum prompt length. Default: one token less than `tgi_max_total_tokens`."
        ),
        Flag(TGI_GROUP),
    ] = None
    tgi_max_total_tokens: Annotated[
        int | None,
        Field(ge=2, description="Maximum length of prompt and answer. Default: the context length."),
        Flag(TGI_GROUP),
    ] = None
    tgi_max_body_bytes: Annotated[
        int,
        Field(
            ge=1024, le=1 << 30, description="Maximum size of a request body; `max_body_bytes` also applies."
        ),
        Flag(TGI_GROUP),
    ] = 2_000_000
    tgi_compute_type: Annotated[
        str | None,
        Field(
            pattern=r"^[!-~]{1,100}$",
            description="The header x-compute-type: one word. Default: gpu+optimized or cpu+optimized. COMPUTE_TYPE"
            " also sets it.",
        ),
        Flag(TGI_GROUP),
    ] = None
    watermark_gamma: Annotated[
        float,
        Field(gt=0, lt=1, description="Share of the vocabulary that a watermark prefers."),
        Flag(TGI_GROUP),
    ] = 0.5
    watermark_delta: Annotated[
        float,
        Field(ge=0, le=100, description="Value that a watermark adds to the logits of preferred tokens."),
        Flag(TGI_GROUP),
    ] = 2.0
