"""Settings of Text Generation Inference's API: its launcher's limits, and its watermark."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field
from pydantic_settings import BaseSettings

from jan_serve.config.model_options import Flag

TGI_GROUP: Final = "Text Generation Inference"


class TgiOptions(BaseSettings):
    """What one request to that API may ask for; its /info shows them. Part of Settings. Lengths are tokens."""

    tgi_max_concurrent_requests: Annotated[
        int,
        Field(
            ge=1, le=100_000, description="Generations at once; a request beyond them is answered with 429."
        ),
        Flag(TGI_GROUP),
    ] = 128
    tgi_max_best_of: Annotated[int, Field(ge=1, le=64, description="Largest `best_of`."), Flag(TGI_GROUP)] = 2
    tgi_max_stop_sequences: Annotated[
        int, Field(ge=0, le=64, description="Most strings in `stop`."), Flag(TGI_GROUP)
    ] = 4
    tgi_max_top_n_tokens: Annotated[
        int, Field(ge=0, le=100, description="Largest `top_n_tokens`."), Flag(TGI_GROUP)
    ] = 5
    tgi_max_client_batch_size: Annotated[
        int, Field(ge=1, le=128, description="Most prompts of one completion."), Flag(TGI_GROUP)
    ] = 4
    tgi_max_input_tokens: Annotated[
        int | None,
        Field(ge=1, description="Longest prompt. By default one token less than prompt and answer together."),
        Flag(TGI_GROUP),
    ] = None
    tgi_max_total_tokens: Annotated[
        int | None,
        Field(ge=2, description="Longest prompt and answer together. By default the context length."),
        Flag(TGI_GROUP),
    ] = None
    tgi_max_body_bytes: Annotated[
        int,
        Field(ge=1024, le=1 << 30, description="Largest request body; no more than `max_body_bytes` counts."),
        Flag(TGI_GROUP),
    ] = 2_000_000
    tgi_compute_type: Annotated[
        str | None,
        Field(
            pattern=r"^[!-~]{1,100}$",
            description="The header x-compute-type: one word. By default gpu+optimized or cpu+optimized. COMPUTE_TYPE"
            " counts too.",
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
        Field(ge=0, le=100, description="What a watermark adds to the logits of preferred tokens."),
        Flag(TGI_GROUP),
    ] = 2.0
